import { Hono } from 'hono';
import { openApiDocument } from './document.ts';
import type { GatewayDeps } from '../deps.ts';
import { Failure } from '../../failure.ts';

const VERSION = '0.4.0';

/** The page of Swagger UI. All its files come from the gateway, so it loads nothing from other hosts. */
const docsPage = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Trialgate</title><link rel="stylesheet" href="/docs/swagger-ui.css"></head>
<body><div id="page"></div><script src="/docs/swagger-ui-bundle.js"></script><script src="/docs/start.js"></script></body>
</html>`;

/** The files that the page needs, with their types. No other file of the package is served. */
const DOCS_FILES = new Map([
  ['swagger-ui.css', 'text/css'],
  ['swagger-ui-bundle.js', 'text/javascript'],
]);

const DOCS_START = `SwaggerUIBundle({ url: '/openapi.json', dom_id: '#page', deepLinking: true, validatorUrl: null });`;

/** Serves the API's description for programs and people. */
export function docsRoutes({ docsFile }: GatewayDeps): Hono {
  const app = new Hono();
  let document: ReturnType<typeof openApiDocument> | null = null;
  app.get('/openapi.json', (c) => c.json((document ??= openApiDocument(VERSION))));
  app.get('/docs', (c) =>
    c.html(docsPage, 200, {
      'content-security-policy': "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
    }),
  );
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
