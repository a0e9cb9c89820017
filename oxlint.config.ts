import { defineConfig } from 'oxlint';

/**
 * The folders that each folder may import besides itself, in the order in which they build on one another. Nothing in the product imports
 * `tests/` or `bench/`; a test beside its code may import `tests/support/` too. Data folders (`agents/`, `tasks/`, `migrations/`) have no code.
 */
const LAYERS: Record<string, readonly string[]> = {
  core: [],
  store: ['core'],
  gateway: ['core', 'store'],
  activities: ['core', 'store'],
  workflows: ['core', 'store', 'activities'],
  cli: ['core', 'store', 'gateway', 'activities', 'workflows'],
  deploy: ['core', 'store', 'gateway'],
  // The page also has the TypeScript client, which is no folder of the product.
  web: [],
};
const FOLDERS = [...Object.keys(LAYERS), 'bench', 'tests'];

/** The folders of the gateway, in the same way. The files beside them are what all folders share. */
const GATEWAY_LAYERS: Record<string, readonly string[]> = {
  record: [],
  conversations: [],
  engines: ['conversations'],
  relay: ['engines'],
  protocols: ['engines'],
  calls: ['record', 'conversations', 'engines', 'protocols'],
  http: ['record', 'engines', 'relay', 'protocols', 'calls'],
  runtimes: ['record', 'conversations', 'engines', 'relay', 'protocols', 'calls', 'http'],
};

/** Matches relative imports of the folders in `others`. */
function pattern(folder: string, others: readonly string[], below: readonly string[] = []) {
  const regex = `^(?:\\.\\./)+(?:${others.join('|')})/`;
  const message = `${folder}/ may import only itself${below.map((name) => `, ${name}/`).join('')}: see LAYERS in oxlint.config.ts`;
  return { regex, message };
}

const refuse = (files: readonly string[], patterns: readonly object[]) => ({
  files: [...files],
  rules: { 'no-restricted-imports': ['error', { patterns }] as ['error', object] },
});

const othersOf = (folder: string) => FOLDERS.filter((name) => name !== folder && !LAYERS[folder]?.includes(name));

const gatewayRules = Object.entries(GATEWAY_LAYERS).flatMap(([folder, below]) => {
  const others = Object.keys(GATEWAY_LAYERS).filter((name) => name !== folder && !below.includes(name));
  if (others.length === 0) return [];
  const patterns = [pattern('gateway', othersOf('gateway'), LAYERS.gateway), pattern(folder, others, below)];
  return [refuse([`gateway/${folder}/**`], patterns)];
});

const layerRules = Object.entries(LAYERS).flatMap(([folder, below]) => {
  const others = othersOf(folder);
  const tested = others.filter((name) => name !== 'tests');
  return [
    refuse([`${folder}/**`], [pattern(folder, others, below)]),
    ...(folder === 'gateway' ? gatewayRules : []),
    refuse([`${folder}/**/*.test.ts`], [pattern(folder, tested, below)]),
  ];
});

export default defineConfig({
  plugins: ['typescript', 'promise', 'node', 'import'],
  categories: { correctness: 'error', suspicious: 'error' },
  rules: {
    'typescript/no-explicit-any': 'error',
    'no-console': 'off',
    'no-await-in-loop': 'off',
    'import/no-unassigned-import': 'off',
    'import/no-named-as-default-member': 'off',
    // Types may form cycles: they are gone at run time.
    'import/no-cycle': ['error', { ignoreTypes: true }],
  },
  ignorePatterns: ['node_modules', '.trialgate', 'migrations', 'web/dist'],
  overrides: layerRules,
});
