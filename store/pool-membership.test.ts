import { beforeEach, expect, test } from 'vitest';
import { eq } from 'drizzle-orm';
import { useDatabase } from '../tests/support/harness/use-database.ts';
import {
  changeFound,
  joinByHand,
  leaveByHand,
  registerReplicas,
  type FoundEngine,
} from './queries/register-replicas.ts';
import { replicas } from './schema.ts';

const store = useDatabase();
beforeEach(async () => {
  await store.db.delete(replicas);
});

const [A, B, C, OTHER_KIND] = ['http://a:1', 'http://b:1', 'http://c:1', 'openai+http://d:1'];

const serving = (...urls: string[]): FoundEngine[] => urls.map((url) => ({ url, draining: false }));
const draining = (...urls: string[]): FoundEngine[] => urls.map((url) => ({ url, draining: true }));

/** A gateway that starts with a file. `list` is its `--engine`. */
const startWithFile = (found: FoundEngine[], list: string[] = []) => changeFound(store.db, 'file', { found, list });
const changeFile = (found: FoundEngine[], ...left: string[]) => changeFound(store.db, 'file', { found, left });

const give = async (runId: string | null) => {
  await store.db.update(replicas).set({ runId, weightVersion: runId && `${runId}@1`, inRotation: true });
};

const rowOf = async (url: string) => (await store.db.select().from(replicas).where(eq(replicas.url, url)))[0];
const namers = async () =>
  Object.fromEntries(
    (await store.db.select().from(replicas).orderBy(replicas.url)).map(({ url, foundBy }) => [url, foundBy]),
  );

test('a run whose engines have all left keeps the pool: the engines that join later are its own, and wait for its weights', async () => {
  await startWithFile(serving(A, B));
  await give('run');
  await changeFile([], A, B);
  const kept = await store.db.select().from(replicas);
  expect(kept).toMatchObject([{ foundBy: 'nobody', draining: true, runId: 'run' }]);
  await changeFile(serving(C));
  expect(await namers()).toEqual({ [C]: 'file' });
  expect(await rowOf(C)).toMatchObject({ runId: 'run', weightVersion: 'run@1', inRotation: false });
});

test('an engine that takes the place of the only one is the run’s', async () => {
  await startWithFile(serving(A));
  await give('run');
  await changeFile(serving(B), A);
  expect(await namers()).toEqual({ [B]: 'file' });
  expect(await rowOf(B)).toMatchObject({ runId: 'run', inRotation: false });
});

test('an engine that left as the last of a run and comes back serves the run again', async () => {
  await startWithFile(serving(A));
  await give('run');
  await changeFile([], A);
  await changeFile(serving(A));
  expect(await rowOf(A)).toMatchObject({ foundBy: 'file', draining: false, runId: 'run', inRotation: true });
});

test('engines that leave while no run has them leave nothing behind', async () => {
  await startWithFile(serving(A, B));
  await changeFile([], A, B);
  expect(await namers()).toEqual({});
});

test('a list that names other engines takes those of a run away for good', async () => {
  await registerReplicas(store.db, [A]);
  await give('run');
  await registerReplicas(store.db, [B]);
  expect(await namers()).toEqual({ [B]: 'list' });
  expect(await rowOf(B)).toMatchObject({ runId: null, inRotation: true });
});

test('a row that was kept for a run is removed by the next change after the run has released the pool', async () => {
  await startWithFile(serving(A));
  await give('run');
  await changeFile([], A);
  await give(null);
  await changeFile(serving(B));
  expect(await namers()).toEqual({ [B]: 'file' });
  expect(await rowOf(B)).toMatchObject({ runId: null, inRotation: true });
});

test('an engine of another kind that drained serves again outside of the run that has the pool', async () => {
  await startWithFile(serving(A, OTHER_KIND));
  await store.db.update(replicas).set({ runId: 'run', weightVersion: 'run@1' }).where(eq(replicas.url, A));
  await changeFile([...serving(A), ...draining(OTHER_KIND)]);
  await changeFile(serving(A, OTHER_KIND));
  expect(await rowOf(OTHER_KIND)).toMatchObject({ draining: false, runId: null, inRotation: true });
});

test('an engine that joins while an evaluation has one that takes no weights belongs to no run, and that one’s row is removed when it leaves', async () => {
  await startWithFile(serving(OTHER_KIND));
  await store.db.update(replicas).set({ runId: 'evaluated' });
  await changeFile(serving(OTHER_KIND, A));
  expect(await rowOf(A)).toMatchObject({ runId: null, inRotation: true });
  await changeFile([], OTHER_KIND);
  expect(await namers()).toEqual({ [A]: 'file' });
});

test('an engine that several sources name obeys the first of list, file and hand, in whatever order they came', async () => {
  await joinByHand(store.db, A);
  await startWithFile(serving(A));
  expect(await namers()).toEqual({ [A]: 'file' });
  await leaveByHand(store.db, A);
  expect(await namers()).toEqual({ [A]: 'file' });
  await changeFile(draining(A));
  await registerReplicas(store.db, [A]);
  expect(await rowOf(A)).toMatchObject({ foundBy: 'list', draining: false });
  await changeFile([], A);
  expect(await namers()).toEqual({ [A]: 'list' });
  await joinByHand(store.db, A);
  expect(await namers()).toEqual({ [A]: 'list' });
});

test('engines that move from a gateway’s list to its file while a run has them stay in the run, and the file drains them', async () => {
  await registerReplicas(store.db, [A, B]);
  await give('run');
  await registerReplicas(store.db, []);
  await startWithFile(serving(A, B));
  expect(await namers()).toEqual({ [A]: 'file', [B]: 'file' });
  expect(await rowOf(A)).toMatchObject({ runId: 'run', inRotation: true });
  await changeFile([...serving(A), ...draining(B)]);
  expect(await rowOf(B)).toMatchObject({ draining: true });
});

test('an engine that both a gateway’s list and its file name counts as named by the list', async () => {
  await registerReplicas(store.db, [A]);
  await startWithFile(serving(A, B), [A]);
  expect(await namers()).toEqual({ [A]: 'list', [B]: 'file' });
});

test('gateways that change the pool at the same time all succeed', async () => {
  const names = Array.from({ length: 8 }, (_, i) => `http://many-${i}:1`);
  for (let round = 0; round < 6; round++) {
    await startWithFile(serving(...names));
    await Promise.all(
      names.map((name, i) =>
        i % 2 === 0
          ? changeFile(serving(...names.filter((other) => other !== name).toReversed()), name)
          : startWithFile(serving(...names.toSorted(() => (i % 4 === 1 ? 1 : -1)), `http://new-${i}-${round}:1`)),
      ),
    );
  }
});
