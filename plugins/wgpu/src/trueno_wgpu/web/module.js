// Runs a batch that `trueno.web.export` wrote: `const m = await load("folder/"); const { y } = await m.run({ x });`
// On a GPU, one submission for each run; nothing is read back but the outputs.  Without one, kernels of WebAssembly, if
// the export has them.  No dependency, no build step.

const TYPES = { float32: Float32Array, int64: BigInt64Array, uint8: Uint8Array };
const BYTES = { float32: 4, int64: 8, uint8: 1 };
const FETCHES = 4; // at a time

export class TruenoError extends Error {
  name = "TruenoError";
}

/** Whether pages can use WebGPU here, and why not: "" if they can. */
export async function missing() {
  if (!globalThis.navigator?.gpu) return "this browser has no WebGPU, or the page is not served over https or localhost";
  const adapter = await navigator.gpu.requestAdapter();
  return adapter ? "" : "WebGPU finds no GPU here";
}

/** Load a folder: kernels are compiled, and data goes to the device, or to the memory of kernels on the CPU. */
export async function load(url, { device, use, progress = () => {} } = {}) {
  const base = new URL(url.endsWith("/") ? url : `${url}/`, globalThis.document?.baseURI ?? globalThis.location?.href);
  const plan = await (await get(new URL("plan.json", base))).json();
  if (plan.format !== "trueno-web" || plan.version !== 1)
    throw new TruenoError(`${base}plan.json has format ${plan.format} ${plan.version}; this runtime reads trueno-web 1`);
  const engine = await chosen(plan, device, use);
  try {
    await engine.fill(base, progress);
  } catch (error) {
    engine.destroy();
    throw error;
  }
  return new Module(plan, engine);
}

/** What runs the plan: the GPU, or the CPU where that is wanted, or there is no GPU that can. */
async function chosen(plan, device, use) {
  if (![undefined, "webgpu", "wasm"].includes(use)) throw new TruenoError(`use is ${use}; give "webgpu" or "wasm"`);
  if (use === "wasm") {
    if (!plan.wasm) throw new TruenoError("the module has no kernels of WebAssembly; export it with wasm=True");
    return new Cpu(plan);
  }
  try {
    return new Gpu(plan, device ?? (await open(plan.needs)));
  } catch (error) {
    if (use || !plan.wasm || !(error instanceof TruenoError)) throw error;
    return new Cpu(plan);
  }
}

async function open({ features, limits }) {
  const why = await missing();
  if (why) throw new TruenoError(`${why}; a browser with WebGPU and a GPU runs this module, and any browser one that was exported with wasm=True`);
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  for (const one of features)
    if (!adapter.features.has(one)) throw new TruenoError(`the GPU lacks the feature ${one}, which the module needs`);
  for (const [name, need] of Object.entries(limits))
    if (adapter.limits[name] < need)
      throw new TruenoError(`the module needs ${name} ${need}, and the GPU has ${adapter.limits[name]}`);
  return adapter.requestDevice({ requiredFeatures: features, requiredLimits: limits });
}

async function get(url, cache = "reload") { // never from a cache: a later export has other files under the same names
  let answer;
  try {
    answer = await fetch(url, { cache });
  } catch (error) {
    throw new TruenoError(`${url} cannot be fetched: ${error.message}`);
  }
  if (!answer.ok) throw new TruenoError(`${url} cannot be fetched: ${answer.status} ${answer.statusText}`);
  return answer;
}

/** Bytes of a file whose name is their hash, from the browser's cache where it has them. */
async function bytes(base, { file, bytes: size }) {
  const url = new URL(`data/${file}.bin`, base);
  const cache = await globalThis.caches?.open("trueno").catch(() => undefined);
  let answer = await cache?.match(url);
  if (!answer) {
    answer = await get(url, cache ? "reload" : "default"); // a second cache would keep what this one forgets
    await cache?.put(url, answer.clone()).catch(() => {}); // a full disk is no reason to stop
  }
  const data = new Uint8Array(await answer.arrayBuffer());
  if (data.byteLength !== size) {
    await cache?.delete(url);
    throw new TruenoError(`${url} has ${data.byteLength} bytes, and the plan says ${size}; export the module again`);
  }
  return data;
}

const counted = (shape) => shape.reduce((a, b) => a * b, 1);
const padded = (size) => Math.max(4, Math.ceil(size / 4) * 4);

class Module {
  #plan; #engine; #unset; #turn = Promise.resolve();

  constructor(plan, engine) {
    this.#plan = plan;
    this.#engine = engine;
    this.#unset = new Set(Object.keys(plan.inputs));
  }

  /** Names, dtypes and shapes of what a run takes and gives. */
  get inputs() { return ports(this.#plan.inputs); }
  get outputs() { return ports(this.#plan.outputs); }
  /** "webgpu" or "wasm", and the GPU's device. */
  get engine() { return this.#engine.name; }
  get device() { return this.#engine.device; }

  /** Run everything once.  values: arrays by the names of inputs; one that is left out is as it was in the run before.
   *  read: the outputs that come back, all of them without it. */
  run(values = {}, { read = Object.keys(this.#plan.outputs) } = {}) {
    const turn = this.#turn.then(() => this.#run(values, read));
    this.#turn = turn.catch(() => {});
    return turn;
  }

  async #run(values, read) {
    if (this.#engine.gone) throw new TruenoError(this.#engine.gone);
    const { inputs, outputs } = this.#plan;
    for (const name of read)
      if (!Object.hasOwn(outputs, name)) throw new TruenoError(`there is no output ${name}; there are ${Object.keys(outputs).join(", ")}`);
    const ready = Object.entries(values).map(([name, value]) => [name, array(name, value, inputs)]);
    const unset = [...this.#unset].filter((name) => !Object.hasOwn(values, name));
    if (unset.length) throw new TruenoError(`the first run needs ${unset.join(", ")}, too`);
    for (const [name, data] of ready) {
      this.#engine.write(name, data);
      this.#unset.delete(name);
    }
    return this.#engine.run(read);
  }

  /** Free the device; the module cannot run again. */
  destroy() {
    this.#engine.gone ||= "the module was destroyed; load it again";
    this.#engine.destroy();
  }
}

/** Kernels in WGSL.  gone: why it cannot run again, as a sentence. */
class Gpu {
  name = "webgpu"; gone = "";
  #plan; #buffers = []; #steps = []; #staging; #offsets = {};

  constructor(plan, device) {
    this.#plan = plan;
    this.device = device;
    device.lost.then(({ message }) => { this.gone ||= `the GPU was lost: ${message}; load the module again`; });
  }

  async fill(base, progress) {
    const { buffers, kernels, steps, uniforms, outputs } = this.#plan;
    const { COPY_SRC, COPY_DST, STORAGE, UNIFORM, MAP_READ } = GPUBufferUsage;
    const device = this.device;
    device.pushErrorScope("out-of-memory");
    this.#buffers = buffers.map(({ bytes: size }) =>
      device.createBuffer({ size: padded(size), usage: STORAGE | COPY_SRC | COPY_DST }));
    let room = 0;
    for (const [name, { dtype, shape }] of Object.entries(outputs)) {
      this.#offsets[name] = room;
      room += Math.ceil(counted(shape) * BYTES[dtype] / 8) * 8;
    }
    this.#staging = device.createBuffer({ size: Math.max(room, 8), usage: MAP_READ | COPY_DST });
    const full = await device.popErrorScope();
    if (full) throw new TruenoError(`the GPU has no room for the module: ${full.message}`);

    const constants = uniforms && device.createBuffer({ size: padded(uniforms.bytes), usage: UNIFORM | COPY_DST });
    const pieces = uniforms ? [{ piece: uniforms, buffer: constants, at: 0 }] : [];
    buffers.forEach(({ data = [] }, number) => {
      let at = 0;
      for (const piece of data) {
        pieces.push({ piece, buffer: this.#buffers[number], at });
        at += piece.bytes;
      }
    });
    const compiled = Promise.all(kernels.map((kernel) => this.#compile(base, kernel)));
    const [pipelines] = await Promise.all([compiled, fetched(base, pieces, progress, (data, { buffer, at }) => {
      const whole = data.byteLength % 4 ? new Uint8Array(padded(data.byteLength)) : data;
      if (whole !== data) whole.set(data);
      device.queue.writeBuffer(buffer, at, whole);
    })]);
    const groups = new Map();
    this.#steps = steps.map((step) => {
      if (step.run === undefined) return step;
      const key = JSON.stringify([step.run, step.bind, step.uniforms]);
      if (!groups.has(key)) {
        const [at, size] = step.uniforms;
        const entries = [{ binding: 0, resource: { buffer: constants, offset: at, size } }];
        step.bind.forEach(([buffer, offset, size], i) =>
          entries.push({ binding: i + 1, resource: { buffer: this.#buffers[buffer], offset, size } }));
        groups.set(key, device.createBindGroup({ layout: pipelines[step.run].getBindGroupLayout(0), entries }));
      }
      return { pipeline: pipelines[step.run], group: groups.get(key), grid: step.grid };
    });
  }

  async #compile(base, { name, writes }) {
    const code = await (await get(new URL(`kernels/${name}.wgsl`, base))).text();
    const { COMPUTE } = GPUShaderStage;
    const entries = [{ binding: 0, visibility: COMPUTE, buffer: { type: "uniform" } }];
    writes.forEach((written, i) => entries.push(
      { binding: i + 1, visibility: COMPUTE, buffer: { type: written ? "storage" : "read-only-storage" } }));
    const layout = this.device.createPipelineLayout(
      { bindGroupLayouts: [this.device.createBindGroupLayout({ entries })] });
    const module = this.device.createShaderModule({ label: name, code });
    try {
      return await this.device.createComputePipelineAsync(
        { label: name, layout, compute: { module, entryPoint: "main" } });
    } catch (error) {
      throw new TruenoError(`the kernel ${name} does not compile here: ${error.message}`);
    }
  }

  write(name, data) {
    this.device.queue.writeBuffer(this.#buffers[this.#plan.inputs[name].buffer], 0, data);
  }

  async run(read) {
    const { outputs } = this.#plan;
    const encoder = this.device.createCommandEncoder();
    let pass, last;
    for (const step of this.#steps) {
      if (step.pipeline) {
        pass ??= encoder.beginComputePass();
        if (step.pipeline !== last) pass.setPipeline((last = step.pipeline));
        pass.setBindGroup(0, step.group);
        pass.dispatchWorkgroups(...step.grid);
        continue;
      }
      pass?.end();
      pass = last = undefined;
      if (step.copy) {
        const [source, at, target, to, size] = step.copy;
        encoder.copyBufferToBuffer(this.#buffers[source], at, this.#buffers[target], to, size);
      } else encoder.clearBuffer(this.#buffers[step.clear[0]], 0, step.clear[1]);
    }
    pass?.end();
    for (const name of read) {
      const { buffer, dtype, shape } = outputs[name];
      const size = padded(counted(shape) * BYTES[dtype]);
      if (counted(shape)) encoder.copyBufferToBuffer(this.#buffers[buffer], 0, this.#staging, this.#offsets[name], size);
    }
    this.device.queue.submit([encoder.finish()]);
    if (!read.length) return {};
    try {
      await this.#staging.mapAsync(GPUMapMode.READ);
    } catch (error) {
      throw new TruenoError(this.gone || `the results cannot be read: ${error.message}`);
    }
    const memory = this.#staging.getMappedRange();
    const results = Object.fromEntries(read.map((name) => {
      const { dtype, shape } = outputs[name], start = this.#offsets[name];
      return [name, new TYPES[dtype](memory.slice(start, start + counted(shape) * BYTES[dtype]))];
    }));
    this.#staging.unmap();
    return results;
  }

  destroy() { this.device.destroy(); }
}

/** Kernels of WebAssembly, which run in the thread that calls them. */
class Cpu {
  name = "wasm"; gone = "";
  #plan; #exports; #memory;

  constructor(plan) { this.#plan = plan; }

  async fill(base, progress) {
    const code = await (await get(new URL("kernels/module.wasm", base))).arrayBuffer();
    try {
      this.#exports = (await WebAssembly.instantiate(code, {})).instance.exports;
    } catch (error) {
      throw new TruenoError(`the kernels do not run here, which need WebAssembly with SIMD: ${error.message}`);
    }
    this.#memory = new Uint8Array(this.#exports.memory.buffer);
    const pieces = this.#plan.wasm.data.flatMap(({ at, data }) => data.map((piece) => {
      const place = at;
      at += piece.bytes;
      return { piece, at: place };
    }));
    await fetched(base, pieces, progress, (data, { at }) => this.#memory.set(data, at));
  }

  write(name, data) {
    this.#memory.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), this.#plan.wasm.inputs[name]);
  }

  run(read) {
    const { outputs, wasm } = this.#plan;
    let step;
    try {
      step = this.#exports.run();
    } catch (error) { // nothing says how far it came
      throw new TruenoError((this.gone = `the kernels stopped: ${error.message}; load the module again`));
    }
    if (step) throw new TruenoError(`${wasm.steps[step - 1]} refused the run: an index or a length is out of range`);
    for (const [source, target, size] of wasm.feeds) this.#memory.copyWithin(target, source, source + size);
    return Object.fromEntries(read.map((name) => {
      const { dtype, shape } = outputs[name], start = wasm.outputs[name];
      return [name, new TYPES[dtype](this.#memory.slice(start, start + counted(shape) * BYTES[dtype]).buffer)];
    }));
  }

  destroy() { this.#exports = this.#memory = undefined; }
}

/** Fetch pieces, some at a time, and put each where it belongs. */
async function fetched(base, pieces, progress, put) {
  const total = pieces.reduce((sum, { piece }) => sum + piece.bytes, 0);
  let done = 0;
  const one = async () => {
    for (let next; (next = pieces.shift()); ) {
      const data = await bytes(base, next.piece);
      put(data, next);
      progress((done += data.byteLength), total);
    }
  };
  await Promise.all(Array.from({ length: FETCHES }, one));
}

const ports = (table) => Object.fromEntries(
  Object.entries(table).map(([name, { dtype, shape }]) => [name, { dtype, shape: [...shape] }]));

/** What a page gives for an input, as bytes for the device. */
function array(name, value, inputs) {
  if (!Object.hasOwn(inputs, name)) throw new TruenoError(`there is no input ${name}; there are ${Object.keys(inputs).join(", ")}`);
  const { dtype, shape } = inputs[name], Type = TYPES[dtype], count = counted(shape);
  let data = typeof value === "number" || typeof value === "bigint" ? [value] : value;
  if (!Array.isArray(data) && !ArrayBuffer.isView(data))
    throw new TruenoError(`${name} is ${value === null ? "null" : typeof value}; give an array of ${count} numbers`);
  if (data.length !== count)
    throw new TruenoError(`${name} has ${data.length} numbers, and [${shape}] has ${count}`);
  if (!(data instanceof Type)) {
    if (ArrayBuffer.isView(data) && dtype !== "int64")
      throw new TruenoError(`${name} is a ${data.constructor.name}; give a ${Type.name} or an array of numbers`);
    try {
      data = dtype === "int64" ? BigInt64Array.from(data, BigInt) : Type.from(data, Number);
    } catch {
      throw new TruenoError(`${name} holds what is no whole number; it is ${dtype}`);
    }
  }
  const size = data.byteLength;
  if (size % 4 === 0) return data;
  const whole = new Uint8Array(padded(size));
  whole.set(new Uint8Array(data.buffer, data.byteOffset, size));
  return whole;
}
