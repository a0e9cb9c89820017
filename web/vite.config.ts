import { defineConfig } from 'vite';

/** The page is served under /ui by the gateway, which lets the browser load files of its own alone. */
export default defineConfig({
  base: '/ui/',
  // A file that is inlined as a `data:` URL would be refused for scripts and styles.
  build: { target: 'es2023', assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  logLevel: 'warn',
});
