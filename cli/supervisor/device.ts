import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import type { Deployment } from '../config/schema.ts';

/** Returns the device to use. `auto` is cuda when NVIDIA's driver lists a GPU. */
export function deviceOf(wanted: 'auto' | 'cpu' | 'cuda'): 'cpu' | 'cuda' {
  if (wanted !== 'auto') return wanted;
  const listed = spawnSync('nvidia-smi', ['-L'], { encoding: 'utf8', timeout: 10_000 });
  return listed.status === 0 && /GPU \d+:/.test(listed.stdout) ? 'cuda' : 'cpu';
}

export type Dtype = 'bfloat16' | 'float32';
/** A number format, and why it was chosen. */
export type ChosenDtype = { dtype: Dtype; why: string };

/**
 * Returns the dtype in which our engine and our trainer compute, with weights that have the values of bfloat16 in both. On a CPU without
 * instructions for bfloat16 (x86 without AVX-512), float32 gives more tokens a second (`bench/cpu_dtype.py` measures it).
 */
export function dtypeOn(device: 'cpu' | 'cuda', wanted: 'auto' | Dtype, cpuinfo = '/proc/cpuinfo'): ChosenDtype {
  if (wanted !== 'auto') return { dtype: wanted, why: 'as the setting dtype says' };
  if (device === 'cuda') return { dtype: 'bfloat16', why: 'on a GPU' };
  const listed = existsSync(cpuinfo) ? /^(flags|Features)\s*:(.*)$/m.exec(readFileSync(cpuinfo, 'utf8')) : null;
  if (listed === null) return { dtype: 'bfloat16', why: 'the processor does not say what it can do' };
  const [, kind, list = ''] = listed;
  const features = list.split(' ');
  const instructions = kind === 'flags' ? 'AVX-512' : 'instructions for bfloat16';
  // PyTorch asks for the same ones (`mkldnn_bf16_device_check`).
  const has = (...names: string[]): boolean => names.every((name) => features.includes(name));
  return has('avx512bw', 'avx512vl', 'avx512dq') || has('bf16')
    ? { dtype: 'bfloat16', why: `the processor has ${instructions}` }
    : { dtype: 'float32', why: `the processor has no ${instructions}` };
}

/** Returns the dtype of a deployment's engine and trainer on this machine. */
export const dtypeOf = ({ device, dtype }: Pick<Deployment, 'device' | 'dtype'>): ChosenDtype =>
  dtypeOn(deviceOf(device), dtype);
