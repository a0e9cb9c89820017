import type { Client } from '@temporalio/client';
import type { Deps } from '../../../activities/deps.ts';
import { Graders } from '../../../activities/reward/graders.ts';
import { HostSandboxes } from '../../../activities/sandbox/host-sandboxes.ts';
import type { Database } from '../../../store/database.ts';

/** Returns what activities get from their worker, for tests without a gateway. */
export const depsOver = ({ db, temporal, home }: { db: Database; temporal: Client; home: string }): Deps => ({
  db,
  temporal,
  gatewayUrls: [],
  home,
  secret: 'a secret of sixteen characters',
  hostQueue: 'host',
  sandboxes: new HostSandboxes(home, 64),
  graders: new Graders(home),
});
