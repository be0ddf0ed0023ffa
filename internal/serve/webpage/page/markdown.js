// Markdown as elements of the page. The library splits a text into tokens, and here each token
// becomes an element by its name: no text is ever read as HTML, so a hostile one runs nothing.
// marked.js is lib/marked.esm.js of marked 18.2.1 without its last line.

import { make, say } from './dom.js';
import { lexer } from './marked.js';

const longest = 200_000; // characters; longer texts are shown as they are

// markdown returns the elements of a text.
export function markdown(text) {
  if (text.length > longest) return [plain(text)];
  try {
    return blocks(lexer(text, { gfm: true }));
  } catch {
    return [plain(text)]; // too deeply nested
  }
}

const plain = (text) => make('div', { class: 'plain' }, text);

const blocks = (tokens) => tokens.flatMap((token) => block(token) ?? []);

function block(token) {
  switch (token.type) {
    case 'space': case 'def':
      return null;
    case 'heading':
      return make(`h${Math.min(6, token.depth + 3)}`, {}, ...inlines(token.tokens));
    case 'paragraph':
      return make('p', {}, ...inlines(token.tokens));
    case 'blockquote':
      return make('blockquote', {}, ...blocks(token.tokens));
    case 'hr':
      return make('hr');
    case 'code':
      return code(token);
    case 'list':
      return make(token.ordered ? 'ol' : 'ul', { start: token.ordered && token.start !== 1 ? token.start : null },
        ...token.items.map((item) => make('li', {}, ...blocks(item.tokens))));
    case 'checkbox':
      return token.checked ? '☑ ' : '☐ ';
    case 'table':
      return make('div', { class: 'scroll' }, make('table', {},
        make('thead', {}, make('tr', {}, ...token.header.map((c) => make('th', {}, ...inlines(c.tokens))))),
        make('tbody', {}, ...token.rows.map((row) => make('tr', {}, ...row.map((c) => make('td', {}, ...inlines(c.tokens))))))));
    case 'text':
      return token.tokens ? inlines(token.tokens) : decoded(token.text);
    case 'html':
      return plain(token.raw.trimEnd());
  }
  return inline(token);
}

const inlines = (tokens) => tokens.flatMap(inline);

function inline(token) {
  switch (token.type) {
    case 'strong': case 'em': case 'del':
      return make(token.type, {}, ...inlines(token.tokens));
    case 'codespan':
      return make('code', {}, token.text);
    case 'br':
      return make('br');
    case 'link':
      return link(token.href, inlines(token.tokens), token.raw);
    case 'image': // nothing is loaded
      return link(token.href, [token.text || token.href], token.raw);
    case 'escape':
      return token.text;
    case 'text':
      return token.tokens ? inlines(token.tokens) : decoded(token.text);
  }
  return token.raw;
}

const safe = new Set(['http:', 'https:', 'mailto:']);

// link returns a link, or the text itself if its address is not one of the web or of a person.
function link(address, content, raw) {
  const url = URL.parse(address);
  if (!safe.has(url?.protocol)) return raw;
  return make('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer nofollow' }, ...content);
}

const named = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'", nbsp: '\u00a0' };

// decoded replaces the common character references of a text.
const decoded = (text) => text.replace(/&(?:(lt|gt|amp|quot|apos|nbsp)|#(\d{1,7})|#[xX]([\da-fA-F]{1,6}));/g, (all, name, number, hex) => {
  if (name) return named[name];
  const point = number ? Number(number) : parseInt(hex, 16);
  return point > 0 && point <= 0x10ffff ? String.fromCodePoint(point) : all;
});

// code returns a block of code with a button that copies it.
function code(token) {
  const language = (token.lang ?? '').split(/\s/)[0];
  return make('div', { class: 'code' },
    make('div', { class: 'bar' }, make('span', { class: 'muted' }, language), copier(() => token.text, 'Copy the code')),
    make('pre', { tabindex: 0 }, make('code', {}, token.text)));
}

// copier returns a button that copies a text, or null where the browser has no clipboard.
export function copier(text, label) {
  if (!navigator.clipboard) return null;
  const button = make('button', { type: 'button', class: 'link', 'aria-label': label }, 'Copy');
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(text());
    button.textContent = 'Copied';
    say('Copied');
  });
  return button;
}
