import { expect, test } from 'vitest';
import { replicas } from '../../store/schema.ts';
import { FakeEngine } from '../support/fakes/fake-engine.ts';
import { runHeldInRollout } from '../support/harness/held-run.ts';
import { useDatabase } from '../support/harness/use-database.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';

const store = useDatabase();
const environment = useTemporal();

test('an engine that restarts during a rollout gets the version published again while the other replicas stay in rotation', async () => {
  const engines = await Promise.all([new FakeEngine().start(), new FakeEngine().start()]);
  const [restarted, other] = engines.map(({ url }) => url);
  const settings = { engines: [restarted, other], min_replicas: 1 };
  const published = await runHeldInRollout({ db: store.db, environment, engines }, 'lost', settings, async () => {
    await engines[0]?.stop();
    await engines[0]?.start('default');
    await expect
      .poll(
        async () =>
          (await store.db.select().from(replicas)).every(({ inRotation }) => inRotation) && engines[0]?.weightVersion,
        { interval: 200 },
      )
      .toBe('lost@0');
  });
  expect(published).toEqual([
    { to: [restarted, other].toSorted(), inRotation: [] },
    { to: [restarted], inRotation: [other] },
    { to: [restarted, other].toSorted(), inRotation: [] },
  ]);
  for (const engine of engines) await engine.stop();
});
