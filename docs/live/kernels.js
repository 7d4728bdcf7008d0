// The texts of an op that the reader picks, and what this browser's compiler says of the first one.
import { element, json, live, spoken } from "./page.js";

live(document.querySelector("#kernels"), async (place) => {
  const families = await json("kernels/index.json");
  const choice = element("select"), said = element("p"), pair = element("div", "", "live-pair");
  choice.ariaLabel = "op";
  for (const [family, names] of Object.entries(families)) {
    const group = element("optgroup");
    group.label = family;
    for (const name of names) group.append(new Option(name, name));
    choice.append(group);
  }
  const texts = { wgsl: element("code"), ptx: element("code") };
  for (const [name, code] of Object.entries(texts)) {
    const column = element("div"), text = element("pre");
    text.append(code);
    column.append(element("h3", name.toUpperCase()), text);
    pair.append(column);
  }
  place.replaceChildren(choice, said, pair);
  const adapter = await navigator.gpu?.requestAdapter();
  const device = await adapter?.requestDevice();

  async function show() {
    const name = choice.value, { wgsl, ptx } = await json(`kernels/${name}.json`);
    texts.wgsl.textContent = wgsl.join("\n\n");
    texts.ptx.textContent = ptx;
    history.replaceState(null, "", `#${name}`);
    said.textContent = device ? await compiled(device, wgsl) : "This browser finds no GPU for WebGPU, so it only shows the texts.";
    Object.assign(place.dataset, { op: name, compiled: said.textContent.startsWith("This browser compiled") });
  }
  const named = decodeURIComponent(location.hash.slice(1));
  choice.value = Object.values(families).flat().includes(named) ? named : "softmax";
  choice.onchange = show;
  await show();
}, { modules: false });

async function compiled(device, texts) {
  const start = performance.now();
  for (const code of texts) {
    const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
    const wrong = messages.find(({ type }) => type === "error");
    if (wrong) return `This browser refuses the WGSL: line ${wrong.lineNum}: ${wrong.message}`;
  }
  const shaders = texts.length === 1 ? "shader" : `${texts.length} shaders`;
  return `This browser compiled the ${shaders} in ${spoken(performance.now() - start)}.`;
}
