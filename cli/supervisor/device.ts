import { spawnSync } from 'node:child_process';

/** Returns the device to use. `auto` is cuda when NVIDIA's driver lists a GPU. */
export function deviceOf(wanted: 'auto' | 'cpu' | 'cuda'): 'cpu' | 'cuda' {
  if (wanted !== 'auto') return wanted;
  const listed = spawnSync('nvidia-smi', ['-L'], { encoding: 'utf8', timeout: 10_000 });
  return listed.status === 0 && /GPU \d+:/.test(listed.stdout) ? 'cuda' : 'cpu';
}
