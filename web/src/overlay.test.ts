import { expect, test } from 'vitest';
import { overlay } from './overlay.ts';

const chart = (title: string, x: number[], ...labels: string[]) => ({
  title,
  xLabel: 'minutes',
  x,
  lines: labels.map((label) => ({ label, values: x.map((place) => place * 10) })),
});

test('the lines of a second run lie over those of the first at their own places, in the same color and dashed', () => {
  const own = { ...chart('Reward', [1, 2, 4], 'mean', 'median'), band: { low: [0, 1, 2], high: [3, 4, 5] } };
  expect(overlay([own], [chart('Reward', [2, 3], 'median')], 'b')).toEqual([
    {
      ...own,
      x: [1, 2, 3, 4],
      isMerged: true,
      lines: [
        { label: 'mean', values: [10, 20, null, 40] },
        { label: 'median', values: [10, 20, null, 40] },
        { label: 'b: median', values: [null, 20, 30, null], color: 1, isDashed: true },
      ],
      band: { low: [0, 1, null, 2], high: [3, 4, null, 5] },
    },
  ]);
});

test('a chart that only one of two runs has stays, and says whose it is', () => {
  expect(overlay([chart('Entropy', [1], 'entropy')], [chart('KL', [5], 'KL')], 'b')).toMatchObject([
    { title: 'Entropy', lines: [{ label: 'entropy' }] },
    { title: 'KL', x: [5], lines: [{ label: 'b: KL', values: [50], isDashed: true }] },
  ]);
});

test('between its own places a line has under the pointer the value before by minutes, and none by iteration or behind its end', () => {
  const shown = (isCarried: boolean) => {
    const lines = [{ label: 'mean', values: [10, null, 50, null] }];
    const own = { ...chart('Reward', [1, 3, 5, 7]), isCarried, lines };
    return overlay([own], [chart('Reward', [2, 4, 6, 8], 'mean')], 'b')[0]?.lines.map(({ under }) => under);
  };
  expect(shown(true)).toEqual([
    [10, 10, null, 10, 50, null, null, null],
    [null, 20, 20, 40, 40, 60, 60, 80],
  ]);
  expect(shown(false)).toEqual([undefined, undefined]);
});

test('two points of a run at one place stay two', () => {
  const own = { ...chart('Reward', [1, 1, 2], 'mean'), lines: [{ label: 'mean', values: [1, 2, 3] }] };
  expect(overlay([own], [chart('Reward', [1, 3], 'mean')], 'b')).toMatchObject([
    { x: [1, 1, 2, 3], lines: [{ values: [1, 2, 3, null] }, { values: [10, null, null, 30] }] },
  ]);
});
