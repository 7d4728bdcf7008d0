/** Numbers of an input or an output, flat, in C order. */
export type Numbers = Float32Array | BigInt64Array | Uint8Array;
export type Given = Numbers | number[] | bigint[] | number | bigint;
export interface Port {
  dtype: "float32" | "int64" | "uint8";
  shape: number[];
}
export interface Options {
  /** What runs the module; without it WebGPU where that is there, else WebAssembly if the export has it. */
  use?: "webgpu" | "wasm";
  /** A device of the page's own, with the limits and features of the plan; otherwise one is requested. */
  device?: GPUDevice;
  /** Called as bytes of data arrive. */
  progress?: (done: number, total: number) => void;
}
export class TruenoError extends Error {}
export interface Module {
  readonly inputs: Record<string, Port>;
  readonly outputs: Record<string, Port>;
  /** WebAssembly runs in the thread that calls it: give it a worker where a run takes long. */
  readonly engine: "webgpu" | "wasm";
  /** undefined for WebAssembly. */
  readonly device: GPUDevice | undefined;
  /**
   * Run everything once; on a GPU in one submission.
   * values: by name; an input that is left out is as it was in the run before.
   * read: the outputs that come back; all of them without it.
   */
  run(values?: Record<string, Given>, options?: { read?: string[] }): Promise<Record<string, Numbers>>;
  /** Free the device; the module cannot run again. */
  destroy(): void;
}
/** Why pages cannot use WebGPU here; "" if they can.  A module with kernels of WebAssembly runs all the same. */
export function missing(): Promise<string>;
/** Load what `trueno.web.export` wrote. */
export function load(url: string, options?: Options): Promise<Module>;
