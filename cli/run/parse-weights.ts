import { TrialgateError } from '../../core/errors.ts';

/** Parses reward weights such as `tests=1,style=0.2`. @throws TrialgateError `bad_input` */
export function parseWeights(text: string): Record<string, number> {
  return Object.fromEntries(
    text.split(',').map((each) => {
      const [, name, weight] = /^\s*([^=\s]+)=(-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?)\s*$/i.exec(each) ?? [];
      if (name !== undefined && weight !== undefined) return [name, Number(weight)];
      throw new TrialgateError(
        'bad_input',
        `--reward-weights: expected weights such as tests=1,style=0.2, found ${JSON.stringify(text)}`,
      );
    }),
  );
}
