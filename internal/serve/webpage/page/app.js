// The start of the page.

import { askKey, words } from './api.js';
import * as chat from './chat.js';
import { get, show } from './dom.js';
import * as jobs from './jobs.js';
import { models, watch } from './models.js';
import * as monitor from './monitor.js';

const views = { chat: () => {}, jobs: jobs.shown, server: monitor.shown };

// go shows the view that the address names; other names are places in a view.
function go() {
  let name = location.hash.slice(1);
  if (!Object.hasOwn(views, name)) name = document.body.dataset.view ?? 'chat';
  for (const id of Object.keys(views)) get(id).hidden = id !== name;
  for (const link of document.querySelectorAll('nav a')) {
    if (link.hash === `#${name}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.body.dataset.view = name;
  views[name]();
}

// trouble shows errors of background requests until one succeeds.
function trouble() {
  let since = null;
  return (error) => {
    if (error) since = error;
    else if (since === null) return;
    else since = null;
    show(get('notice'), since && words(since));
  };
}

models.addEventListener('change', () => (get('server-model').textContent = models.base?.id ?? ''));
const say = trouble();
const refresh = watch(say);
chat.start();
jobs.start(trouble());
monitor.start().catch(() => {}); // what goes wrong is said by others
get('key-button').addEventListener('click', async () => (await askKey()) && refresh());
addEventListener('hashchange', go);
go();
get('prompt').focus({ preventScroll: true });
