import { runHeavyThread } from './heavy-thread.ts';

await runHeavyThread();
