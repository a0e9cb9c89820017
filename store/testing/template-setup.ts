import { TEMPLATE, TestPostgres } from './postgres.ts';

/** One server is made from nothing for all test files of a run: theirs are copies, which take a tenth of the time. */
export default async function setup(): Promise<() => Promise<void>> {
  const template = await TestPostgres.create();
  await template.stop();
  process.env[TEMPLATE] = template.data;
  return () => {
    delete process.env[TEMPLATE];
    return template.close();
  };
}
