import { Hono } from 'hono';
import { Failure } from '../failure.ts';
import type { GatewayDeps, GatewayEnv } from './deps.ts';

/** The page shows what agents and models wrote, so the browser runs and loads nothing but the page's own files. */
const HEADERS = {
  'content-security-policy':
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
};

const TYPES: Readonly<Record<string, string>> = {
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
};

const ASSET = /^[\w-]+(?:\.[\w-]+)*\.(js|css|svg)$/;

/** Serves the page on runs. It needs no key: what it shows, it reads from routes that do. */
export function pageRoutes({ pageFile }: GatewayDeps): Hono<GatewayEnv> {
  const app = new Hono<GatewayEnv>();
  app.get('/ui/assets/:file', async (c) => {
    const name = c.req.param('file');
    const [, ending = ''] = ASSET.exec(name) ?? [];
    const type = TYPES[ending];
    const bytes = type === undefined ? null : await pageFile(`assets/${name}`);
    if (!bytes || type === undefined)
      throw new Failure(404, 'not_found', 'the page has no such file: load it again', { retryable: false });
    // Its name has its digest.
    return c.body(bytes, 200, {
      ...HEADERS,
      'content-type': type,
      'cache-control': 'public, max-age=31536000, immutable',
    });
  });
  app.on('GET', ['/ui', '/ui/*'], async (c) => {
    const bytes = await pageFile('index.html');
    if (!bytes)
      throw new Failure(
        404,
        'page_not_built',
        'the page is not built here: run `npx trialgate install` or `npm run page` where the gateway runs, and load it again',
        { retryable: false },
      );
    return c.body(bytes, 200, {
      ...HEADERS,
      'content-type': 'text/html; charset=utf-8',
      'cache-control': 'no-store',
    });
  });
  return app;
}
