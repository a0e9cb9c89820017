import { expect, test } from 'vitest';
import { useServer } from './use-database.ts';
import { TestPostgres } from './postgres.ts';

const store = useServer();

test('TestPostgres refuses to start when another test’s server took its port', async () => {
  const second = await TestPostgres.create();
  try {
    await second.stop();
    Object.assign(second, { port: store.postgres.port });
    await expect(second.start()).rejects.toThrow(`port ${store.postgres.port} has another test's database`);
  } finally {
    await second.close();
  }
});
