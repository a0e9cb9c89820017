import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { dtypeOn } from './device.ts';

test.each([
  ['x86 with AVX-512', 'flags\t\t: fpu avx2 avx512f avx512dq avx512bw avx512vl\n', 'bfloat16'],
  ['x86 with AVX2', 'flags\t\t: fpu avx avx2 bmi2\n', 'float32'],
  ['ARM with bf16', 'Features\t: fp asimd bf16 i8mm\n', 'bfloat16'],
  ['ARM without bf16', 'Features\t: fp asimd\n', 'float32'],
])('our engine on a CPU of %s computes in the dtype that the CPU has instructions for', async (_, text, dtype) => {
  await using folder = await temporaryHome();
  const file = join(folder.home, 'cpuinfo');
  await writeFile(file, `processor\t: 0\n${text}`);
  expect(dtypeOn('cpu', file)).toBe(dtype);
  expect(dtypeOn('cuda', file)).toBe('bfloat16');
});
