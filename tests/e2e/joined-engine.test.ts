import { afterEach, beforeEach, expect, test } from 'vitest';
import { changeFound, type FoundEngine } from '../../store/queries/register-replicas.ts';
import { replicas } from '../../store/schema.ts';
import { FakeEngine } from '../support/fakes/fake-engine.ts';
import { runHeldInRollout } from '../support/harness/held-run.ts';
import { useDatabase } from '../support/harness/use-database.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';

const store = useDatabase();
const environment = useTemporal();

const serving = (url: string): FoundEngine => ({ url, draining: false });
const changeEngines = (found: FoundEngine[], ...left: string[]) => changeFound(store.db, 'file', { found, left });
const rotation = async () =>
  (await store.db.select().from(replicas).orderBy(replicas.url)).map(({ inRotation }) => inRotation);

let engines: FakeEngine[];
let [first, second] = ['', ''];
// The first of two engines is the deployment's.
beforeEach(async () => {
  engines = await Promise.all([new FakeEngine().start(), new FakeEngine().start()]);
  [first = '', second = ''] = engines.map(({ url }) => url);
  await store.db.delete(replicas);
  await changeEngines([serving(first)]);
});
afterEach(() => Promise.all(engines.map((engine) => engine.stop())));

const publishedBy = (runId: string, inRollout: () => Promise<void>) =>
  runHeldInRollout({ db: store.db, environment, engines }, runId, {}, inRollout);

test('an engine that joins the deployment during a rollout gets the run’s version while the others stay in rotation, and one that drains gets no later version', async () => {
  const published = await publishedBy('joined', async () => {
    await changeEngines([serving(first), serving(second)]);
    await expect.poll(rotation, { interval: 200 }).toEqual([true, true]);
    await changeEngines([{ url: first, draining: true }, serving(second)]);
  });
  expect(published).toEqual([
    { to: [first], inRotation: [] },
    { to: [second], inRotation: [first] },
    // The drained one is in rotation under its old version, and gets no calls.
    { to: [second], inRotation: [first] },
  ]);
});

test('a run whose only engine leaves during a rollout goes on with the engine that joins later', async () => {
  const published = await publishedBy('replaced', async () => {
    await changeEngines([], first);
    await changeEngines([serving(second)]);
    await expect.poll(rotation, { interval: 200 }).toEqual([true]);
  });
  expect(published).toEqual([
    { to: [first], inRotation: [] },
    { to: [second], inRotation: [] },
    { to: [second], inRotation: [] },
  ]);
});
