import { start } from '../../cli/main.ts';
import { register } from './verb.ts';

// `npm test`. It has a main file of its own, because nothing in the product imports `tests/`.
if (import.meta.main) await start([register]);
