import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { dtypeOn } from './device.ts';

test.each([
  [
    'x86 with AVX-512',
    'flags\t\t: fpu avx2 avx512f avx512dq avx512bw avx512vl\n',
    'bfloat16',
    'the processor has AVX-512',
  ],
  ['x86 with AVX2', 'flags\t\t: fpu avx avx2 bmi2\n', 'float32', 'the processor has no AVX-512'],
  ['ARM with bf16', 'Features\t: fp asimd bf16 i8mm\n', 'bfloat16', 'the processor has instructions for bfloat16'],
  ['ARM without bf16', 'Features\t: fp asimd\n', 'float32', 'the processor has no instructions for bfloat16'],
])(
  'engine and trainer on a CPU of %s compute in the dtype that the CPU has instructions for, unless a setting says otherwise',
  async (_, text, dtype, why) => {
    await using folder = await temporaryHome();
    const file = join(folder.home, 'cpuinfo');
    await writeFile(file, `processor\t: 0\n${text}`);
    expect(dtypeOn('cpu', 'auto', file)).toEqual({ dtype, why });
    expect(dtypeOn('cuda', 'auto', file).dtype).toBe('bfloat16');
    for (const wanted of ['bfloat16', 'float32'] as const)
      for (const device of ['cpu', 'cuda'] as const) expect(dtypeOn(device, wanted, file).dtype).toBe(wanted);
  },
);
