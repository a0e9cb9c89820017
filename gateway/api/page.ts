/** The page of Swagger UI. All its files come from the gateway, so it loads nothing from other hosts. */
export const docsPage = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Trialgate</title><link rel="stylesheet" href="/docs/swagger-ui.css"></head>
<body><div id="page"></div><script src="/docs/swagger-ui-bundle.js"></script><script src="/docs/start.js"></script></body>
</html>`;

/** The files that the page needs, with their types. No other file of the package is served. */
export const DOCS_FILES = new Map([['swagger-ui.css', 'text/css'], ['swagger-ui-bundle.js', 'text/javascript']]);

export const DOCS_START = `SwaggerUIBundle({ url: '/openapi.json', dom_id: '#page', deepLinking: true, validatorUrl: null });`;
