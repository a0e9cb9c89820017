/** Swagger UI, from files that come with the gateway: nothing of it is loaded from elsewhere. */
export const docsPage = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Trialgate</title><link rel="stylesheet" href="/docs/swagger-ui.css"></head>
<body><div id="page"></div><script src="/docs/swagger-ui-bundle.js"></script><script src="/docs/start.js"></script></body>
</html>`;

/** Its files and their types: no other of the package is handed out. */
export const DOCS_FILES = new Map([['swagger-ui.css', 'text/css'], ['swagger-ui-bundle.js', 'text/javascript']]);

export const DOCS_START = `SwaggerUIBundle({ url: '/openapi.json', dom_id: '#page', deepLinking: true, validatorUrl: null });`;
