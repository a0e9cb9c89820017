/** A document's link to another file of the repository. `link` is its text; `target` is empty for a section of the same document. */
export type Link = { link: string; target: string; section: string | null };

const INLINE = /\]\(([^)\s]+)(?: "[^"]*")?\)/g;
const DEFINITION = /^\[[^\]]+\]: (\S+)/gm;
const HTML = /<(?:a|img)\b[^>]*?\b(?:href|src)="([^"]+)"/g;

/** Returns the links of a Markdown document that are not to another site. */
export function linksIn(markdown: string): Link[] {
  const text = withoutCode(markdown);
  return [INLINE, DEFINITION, HTML]
    .flatMap((form) => [...text.matchAll(form)].map(([link, address = '']) => ({ link, address })))
    .filter(({ address }) => !/^[a-z][a-z\d+.-]*:/i.test(address))
    .map(({ link, address }) => {
      const [target = '', section = null] = address.split('#');
      return { link, target: decodeURIComponent(target), section };
    });
}

/** Returns the anchors that GitHub gives the headings of a Markdown document. */
export function headingsOf(markdown: string): string[] {
  const seen = new Map<string, number>();
  return [...markdown.replaceAll(FENCED, '').matchAll(/^#{1,6} +(.*?)(?: +#+)?$/gm)].map(([, heading = '']) => {
    const anchor = heading
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, '')
      .replaceAll(' ', '-');
    const earlier = seen.get(anchor) ?? 0;
    seen.set(anchor, earlier + 1);
    return earlier === 0 ? anchor : `${anchor}-${earlier}`;
  });
}

const FENCED = /^( *)(```+|~~~+)[^]*?^ *\2.*$/gm;
const withoutCode = (markdown: string): string => markdown.replaceAll(FENCED, '').replaceAll(/`[^`\n]+`/g, '`');
