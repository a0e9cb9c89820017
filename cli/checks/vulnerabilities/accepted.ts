/** Known advisories that do not affect how the package is used here, each with the reason. */
export const ACCEPTED: Readonly<Record<string, string>> = {
  'GHSA-67mh-4wv8-2f99':
    "an older esbuild's development server answers any web page; drizzle-kit loads its settings with that esbuild and never serves",
};
