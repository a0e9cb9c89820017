// The commands that the Git hook runs on the files of a commit. `npx husky` switches the hook on.
const ruff = '.trialgate/venv/bin/python -m ruff';

export default {
  '*.{ts,mjs,json,jsonc,yaml,yml}': 'prettier --write --ignore-unknown',
  '*.{ts,mjs}': 'oxlint --deny-warnings',
  '*.py': [`${ruff} check --fix`, `${ruff} format`],
};
