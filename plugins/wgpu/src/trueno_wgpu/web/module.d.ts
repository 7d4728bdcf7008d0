/** Numbers of an input or an output, flat, in C order. */
export type Numbers = Float32Array | BigInt64Array | Uint8Array;
export type Given = Numbers | number[] | bigint[] | number | bigint;
export interface Port {
  dtype: "float32" | "int64" | "uint8";
  shape: number[];
}
export interface Options {
  /** A device of the page's own, with the limits and features of the plan; otherwise one is requested. */
  device?: GPUDevice;
  /** Called as bytes of data arrive. */
  progress?: (done: number, total: number) => void;
}
export class TruenoError extends Error {}
export interface Module {
  readonly inputs: Record<string, Port>;
  readonly outputs: Record<string, Port>;
  readonly device: GPUDevice;
  /**
   * Run everything once, in one submission.
   * values: by name; an input that is left out is as it was in the run before.
   * read: the outputs that come back; all of them without it.
   */
  run(values?: Record<string, Given>, options?: { read?: string[] }): Promise<Record<string, Numbers>>;
  /** Free the device; the module cannot run again. */
  destroy(): void;
}
/** Why pages cannot use WebGPU here; "" if they can. */
export function missing(): Promise<string>;
/** Load what `trueno.web.export` wrote. */
export function load(url: string, options?: Options): Promise<Module>;
