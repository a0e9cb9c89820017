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
};
const FOLDERS = [...Object.keys(LAYERS), 'bench', 'tests'];

/** Refuses relative imports of the top-level folders in `others`. */
function refuse(folder: string, others: readonly string[], files: readonly string[]) {
  const regex = `^(?:\\.\\./)+(?:${others.join('|')})/`;
  const message = `${folder}/ may import only itself${LAYERS[folder]?.map((name) => `, ${name}/`).join('') ?? ''}: see LAYERS in oxlint.config.ts`;
  return {
    files: [...files],
    rules: { 'no-restricted-imports': ['error', { patterns: [{ regex, message }] }] as ['error', object] },
  };
}

const layerRules = Object.entries(LAYERS).flatMap(([folder, below]) => {
  const others = FOLDERS.filter((name) => name !== folder && !below.includes(name));
  const tested = others.filter((name) => name !== 'tests');
  return [refuse(folder, others, [`${folder}/**`]), refuse(folder, tested, [`${folder}/**/*.test.ts`])];
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
  ignorePatterns: ['node_modules', '.trialgate', 'migrations'],
  overrides: layerRules,
});
