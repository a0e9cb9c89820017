import { Hono } from 'hono';
import { openApiDocument } from '../api/document.ts';
import { docsPage, DOCS_FILES, DOCS_START } from '../api/page.ts';
import type { GatewayDeps } from '../deps.ts';
import { Failure } from '../failure.ts';

const VERSION = '0.4.0';

/** Serves the API's description for programs and people. */
export function docsRoutes({ docsFile }: GatewayDeps): Hono {
  const app = new Hono();
  let document: ReturnType<typeof openApiDocument> | null = null;
  app.get('/openapi.json', (c) => c.json((document ??= openApiDocument(VERSION))));
  app.get('/docs', (c) => c.html(docsPage, 200, { 'content-security-policy': "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:" }));
  app.get('/docs/start.js', (c) => c.body(DOCS_START, 200, { 'content-type': 'text/javascript' }));
  app.get('/docs/:file', async (c) => {
    const name = c.req.param('file');
    const type = DOCS_FILES.get(name);
    const bytes = type && (await docsFile(name));
    if (!bytes) throw new Failure(404, 'not_found', 'the page has no such file', { retryable: false });
    return c.body(bytes, 200, { 'content-type': type, 'cache-control': 'max-age=3600' });
  });
  return app;
}
