// The example engine's step, once for each token.
import { element, json, live, spoken } from "./page.js";

live(document.querySelector("#model"), async (place) => {
  const engine = await json("tiny/engine.json");
  const library = await import(new URL("tiny/module.js", document.baseURI).href), missing = await library.missing();
  const began = performance.now();
  const bar = element("p", "The weights are on their way …");
  place.replaceChildren(bar);
  const module = await library.load("tiny/", {
    progress: (done, total) => {
      bar.textContent = done < total ? `${(done / 1e6).toFixed(1)} of ${(total / 1e6).toFixed(1)} MB` : "The kernels are being compiled …";
    },
  });
  let submits = 0;
  if (module.device) {
    const submit = module.device.queue.submit.bind(module.device.queue);
    module.device.queue.submit = (list) => { submits += 1; submit(list); };
  }
  const loaded = performance.now() - began;

  const form = element("form"), prompt = element("input"), count = element("input"), button = element("button", "Generate");
  const shown = element("p", "", "live-tokens"), facts = element("p"), verdict = element("p");
  prompt.value = engine.prompt.join(" ");
  prompt.ariaLabel = "token ids to begin with";
  Object.assign(count, { type: "number", value: engine.tokens.length, min: 1, max: engine.context - 1 });
  count.ariaLabel = "new tokens";
  button.className = "md-button";
  form.append("Prompt ", prompt, " new tokens ", count, " ", button);
  place.replaceChildren(form, shown, facts, verdict);

  async function generate() {
    const words = prompt.value.split(/[\s,]+/).filter(Boolean), ids = words.map(Number), wanted = Number(count.value);
    const odd = words.find((word) => !/^\d+$/.test(word) || Number(word) >= engine.vocabulary);
    for (const line of [shown, facts, verdict]) line.textContent = "";
    if (!ids.length || odd !== undefined)
      throw new Error(`A prompt must be whole numbers from 0 to ${engine.vocabulary - 1}, and holds ${odd ?? "none"}.`);
    if (!(wanted >= 1) || ids.length + wanted > engine.context)
      throw new Error(`Prompt and new tokens are ${ids.length + wanted}; the module takes ${engine.context} at most.`);
    const tokens = [], before = submits, start = performance.now();
    let first;
    for (let t = 0; tokens.length < wanted; t++) {
      const values = { slots: t, positions: t, lengths: t + 1, table: [0] };
      if (t < ids.length) values.token = ids[t]; // later tokens are fed inside the GPU
      const { next } = await module.run(values, { read: t < ids.length - 1 ? [] : ["next"] });
      if (t < ids.length - 1) continue;
      tokens.push(Number(next[0]));
      first ??= performance.now() - start;
      place.dataset.first ??= performance.now();
      shown.textContent = tokens.join(" ");
    }
    const took = performance.now() - start, steps = ids.length + wanted - 1;
    const by = module.device ? `${submits - before} submissions for ${steps} steps` : `by WebAssembly${missing && ` (${missing})`}`;
    facts.textContent = `${wanted} tokens, ${spoken(took / steps)} a step, ${by}; ` +
      `the first token after ${spoken(first)}. The module was loaded in ${spoken(loaded)}.`;
    const compared = ids.join() === engine.prompt.join() ? Math.min(wanted, engine.tokens.length) : 0;
    const same = tokens.slice(0, compared).join() === engine.tokens.slice(0, compared).join();
    verdict.textContent = !compared ? "The engine was not asked for this prompt when the page was built."
      : same ? `The engine on the CPU gives the same ${compared} tokens.` : `The engine on the CPU gives ${engine.tokens.join(" ")}.`;
    Object.assign(place.dataset, { tokens: tokens.join(" "), submits: submits - before, steps, same });
  }
  form.onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    await generate().catch((error) => { verdict.textContent = error.message; });
    button.disabled = false;
  };
  await generate();
});
