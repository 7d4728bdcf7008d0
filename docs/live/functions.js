// Softmax, gelu and matmul by WebGPU, WebAssembly and plain JavaScript, on the same random numbers.
import { element, live, spoken } from "./page.js";

const RUNS = 5;

/** The definitions, in double precision: what the others are compared with. */
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

/** A value for each input of a module. */
const random = ({ inputs }) => Object.fromEntries(
  Object.entries(inputs).map(([name, { shape }]) => [name, normal(shape.reduce((a, b) => a * b, 1))]));

function furthest(got, wanted) {
  let error = 0, most = 0;
  for (let i = 0; i < wanted.length; i++) {
    error = got[i] === got[i] ? Math.max(error, Math.abs(got[i] - wanted[i])) : NaN;
    if (error !== error) return NaN;
    most = Math.max(most, Math.abs(wanted[i]));
  }
  return error / most;
}

/** The middle one of the times of some runs, in milliseconds, and the last result. */
async function timed(module, values) {
  const times = [];
  let y;
  for (let run = 0; run < RUNS; run++) {
    const begin = performance.now();
    ({ y } = await module.run(values));
    times.push(performance.now() - begin);
  }
  return { y, time: times.sort((a, b) => a - b)[RUNS >> 1] };
}

/** Each engine's time and plain JavaScript's, and the largest error of the engines. */
async function measured(name, modules) {
  const [any] = Object.values(modules);
  const values = random(any);
  const { shape } = any.outputs.y, inner = any.inputs.x.shape.at(-1), times = {}, results = [];
  for (const [engine, module] of Object.entries(modules)) {
    const { y, time } = await timed(module, values);
    times[engine] = time;
    results.push(y);
  }
  const start = performance.now(), wanted = exact[name](values, shape, inner);
  times.script = performance.now() - start;
  const errors = results.map((y) => furthest(y, wanted));
  return { shape, times, error: errors.some(Number.isNaN) ? NaN : Math.max(...errors) };
}

live(document.querySelector("#functions"), async (place) => {
  const { load, missing } = await import(new URL("softmax/module.js", document.baseURI).href);
  const without = await missing(), modules = {}, told = element("p");
  const engines = without ? ["wasm"] : ["wasm", "webgpu"];
  const titles = { wasm: "WebAssembly", webgpu: "this GPU", script: "plain JavaScript" }, columns = [...engines, "script"];
  const table = element("table"), body = element("tbody"), head = element("tr");
  for (const title of ["op", "result", "largest error", ...columns.map((e) => titles[e])]) head.append(element("th", title));
  table.createTHead().append(head);
  table.append(body);
  const again = element("button", "Again, with new numbers", "md-button");
  place.replaceChildren(table, told, again);
  if (without) place.insertBefore(element("p", `No column of a GPU: ${without}.`), again);
  const loaded = async (name) => {
    const found = {};
    for (const use of engines) {
      found[use] = await load(`${name}/`, { use, device: modules.softmax?.[use].device }); // one device for all
      await found[use].run(random(found[use]));
      if (told.textContent) continue;
      place.dataset.first = performance.now();
      told.textContent = `The first result, by ${titles[use]}, was there ${spoken(performance.now())} after the page was asked for.`;
    }
    return found;
  };
  const run = async () => {
    again.disabled = true;
    body.replaceChildren();
    for (const name of Object.keys(exact)) {
      modules[name] ??= await loaded(name);
      const { shape, error, times } = await measured(name, modules[name]), row = element("tr");
      const cells = [name, shape.join(" × "), error.toExponential(1), ...columns.map((e) => spoken(times[e]))];
      for (const text of cells) row.append(element("td", text));
      row.dataset.error = error;
      body.append(row);
    }
    table.dataset.engines = engines.join(" ");
    again.disabled = false;
  };
  again.onclick = run;
  await run();
});
