import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';

/** Returns the device to use. `auto` is cuda when NVIDIA's driver lists a GPU. */
export function deviceOf(wanted: 'auto' | 'cpu' | 'cuda'): 'cpu' | 'cuda' {
  if (wanted !== 'auto') return wanted;
  const listed = spawnSync('nvidia-smi', ['-L'], { encoding: 'utf8', timeout: 10_000 });
  return listed.status === 0 && /GPU \d+:/.test(listed.stdout) ? 'cuda' : 'cpu';
}

/**
 * Returns the dtype in which an engine of ours computes. On a CPU without instructions for bfloat16 (x86 without AVX-512), float32 gives
 * more tokens a second (`bench/cpu_dtype.py` measures it), with the same weights.
 */
export function dtypeOn(device: 'cpu' | 'cuda', cpuinfo = '/proc/cpuinfo'): 'bfloat16' | 'float32' {
  if (device === 'cuda' || !existsSync(cpuinfo)) return 'bfloat16';
  const features = /^(?:flags|Features)\s*:(.*)$/m.exec(readFileSync(cpuinfo, 'utf8'))?.[1]?.split(' ') ?? [];
  // PyTorch asks for the same ones (`mkldnn_bf16_device_check`).
  const has = (...names: string[]): boolean => names.every((name) => features.includes(name));
  return has('avx512bw', 'avx512vl', 'avx512dq') || has('bf16') ? 'bfloat16' : 'float32';
}
