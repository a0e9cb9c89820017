/**
 * Does what a gateway on Node does at its start and a Worker cannot: brings the database's tables up to date and registers wrangler.jsonc's
 * engines as the deployment's pool. `TRIALGATE_DATABASE_URL` is the address behind Hyperdrive.
 */
import { fileURLToPath } from 'node:url';
import { unstable_readConfig } from 'wrangler';
import { openDatabase } from '../store/database.ts';
import { migrate } from '../store/queries/migrate.ts';
import { registerReplicas } from '../store/queries/register-replicas.ts';
import { engineUrls } from '../gateway/runtimes/workerd/settings.ts';

const url = process.env['TRIALGATE_DATABASE_URL'];
if (!url) {
  console.error('TRIALGATE_DATABASE_URL: expected the address of the PostgreSQL behind Hyperdrive');
  process.exit(2);
}
const { vars } = unstable_readConfig({ config: fileURLToPath(new URL('wrangler.jsonc', import.meta.url)) });
const engines = engineUrls.parse(process.env['TRIALGATE_ENGINES'] ?? vars['TRIALGATE_ENGINES']);
await migrate(url);
const db = openDatabase(url, { maxConnections: 1 });
await registerReplicas(db, engines);
await db.$client.end();
console.log(`The database is up to date; its pool has ${engines.length} engine(s).`);
