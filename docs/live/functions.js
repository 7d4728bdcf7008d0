// Softmax, gelu and matmul by WebGPU and by plain JavaScript, on the same random numbers.
import { element, live, spoken } from "./page.js";

const RUNS = 5;

/** The definitions, in double precision: what both are compared with. */
const exact = {
  softmax({ x }, [rows, n]) {
    const y = new Float64Array(rows * n);
    for (let r = 0; r < rows; r++) {
      let most = -Infinity, sum = 0;
      for (let i = r * n; i < (r + 1) * n; i++) most = Math.max(most, x[i]);
      for (let i = r * n; i < (r + 1) * n; i++) sum += y[i] = Math.exp(x[i] - most);
      for (let i = r * n; i < (r + 1) * n; i++) y[i] /= sum;
    }
    return y;
  },
  gelu({ x }) {
    return Float64Array.from(x, (v) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3))));
  },
  matmul({ x, w }, [m, n], k) {
    const y = new Float64Array(m * n);
    for (let i = 0; i < m; i++)
      for (let j = 0; j < k; j++)
        for (let l = 0, a = x[i * k + j]; l < n; l++) y[i * n + l] += a * w[j * n + l];
    return y;
  },
};

/** Normal numbers, new ones each time. */
function normal(count) {
  const x = new Float32Array(count);
  for (let i = 0; i < count; i++)
    x[i] = Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  return x;
}

function furthest(got, wanted) {
  let error = 0, most = 0;
  for (let i = 0; i < wanted.length; i++) {
    error = got[i] === got[i] ? Math.max(error, Math.abs(got[i] - wanted[i])) : NaN;
    if (error !== error) return NaN;
    most = Math.max(most, Math.abs(wanted[i]));
  }
  return error / most;
}

async function measured(name, module, first) {
  const values = Object.fromEntries(
    Object.entries(module.inputs).map(([input, { shape }]) => [input, normal(shape.reduce((a, b) => a * b, 1))]));
  const { shape } = module.outputs.y, inner = module.inputs.x.shape.at(-1);
  const { y } = await module.run(values);
  first();
  const start = performance.now(), wanted = exact[name](values, shape, inner), script = performance.now() - start;
  const times = [];
  for (let run = 0; run < RUNS; run++) {
    const begin = performance.now();
    await module.run(values);
    times.push(performance.now() - begin);
  }
  times.sort((a, b) => a - b);
  return { shape, error: furthest(y, wanted), webgpu: times[RUNS >> 1], script };
}

live(document.querySelector("#functions"), async (place) => {
  const { load } = await import(new URL("softmax/module.js", document.baseURI).href);
  const modules = {};
  const table = element("table"), body = element("tbody"), head = element("tr"), told = element("p");
  for (const title of ["op", "result", "largest error", "this GPU", "plain JavaScript"]) head.append(element("th", title));
  table.createTHead().append(head);
  table.append(body);
  const again = element("button", "Again, with new numbers", "md-button");
  place.replaceChildren(table, told, again);
  const first = () => {
    if (place.dataset.first) return;
    place.dataset.first = performance.now();
    told.textContent = `The first result was there ${spoken(performance.now())} after the page was asked for.`;
  };
  const run = async () => {
    again.disabled = true;
    body.replaceChildren();
    for (const name of Object.keys(exact)) {
      modules[name] ??= await load(`${name}/`, { device: modules.softmax?.device }); // one device for all
      const { shape, error, webgpu, script } = await measured(name, modules[name], first), row = element("tr");
      for (const text of [name, shape.join(" × "), error.toExponential(1), spoken(webgpu), spoken(script)])
        row.append(element("td", text));
      row.dataset.error = error;
      body.append(row);
    }
    again.disabled = false;
  };
  again.onclick = run;
  await run();
});
