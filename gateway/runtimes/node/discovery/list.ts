import type { Discovery, Finding } from './discovery.ts';

/** Finds the engines that `--engine` lists. They stay the same while the gateway runs. */
export const list: Discovery = {
  foundBy: 'list',
  watch: ({ engines }) => once({ engines: engines.map((url) => ({ url, draining: false })) }),
};

async function* once(finding: Finding): AsyncGenerator<Finding> {
  yield finding;
}
