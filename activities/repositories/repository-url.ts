import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';

/** The forms that git may fetch from. Its other transports, such as `ext::`, run a program that the URL names. */
const REMOTE = /^(?:https?|ssh|git):\/\/[^-/]/;
const SSH = /^[\w.][\w.-]*@[\w.][\w.-]*:[^:]/;
const LOCAL = /^(?:file:\/\/\/|\/|\.\.?\/)/;

/** The URL of a repository, or the path of one on this machine. A fault's message never has the URL, in which there may be a password. */
export const repositoryUrl = z
  .string()
  .refine((url) => [REMOTE, SSH, LOCAL].some((form) => form.test(url)) && !/[\s\p{Cc}]/u.test(url), {
    message:
      'expected https://…, http://…, ssh://…, git://…, file:///…, user@host:path, or a path that begins with /, ./ or ../ (without spaces)',
  });

/** Returns the URL with a path that is absolute. A relative one is relative to `folder`. */
export const absoluteUrl = (url: string, folder: string): string => (url.startsWith('.') ? resolve(folder, url) : url);

/** Returns the folder that a URL names on this machine, or null for one that is reached over a network. */
export const localFolder = (url: string): string | null =>
  url.startsWith('/') ? url : url.startsWith('file://') ? fileURLToPath(url) : null;

/** Returns the URL for people: without a user, a password or a token. */
export const shownUrl = (url: string): string =>
  SSH.test(url) ? url : url.replace(/\/\/[^/]*@/, '//').replace(/[?#].*$/, '');

/** Returns a text of git's with the URLs in it as `shownUrl` writes them. */
export const withShownUrls = (text: string): string => text.replace(/\w+:\/\/[^\s'"]+/g, shownUrl);
