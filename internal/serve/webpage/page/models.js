// The models of the server: the base and its adapters, as /v1/models has them.

import { read } from './api.js';
import { make, repeat } from './dom.js';

// models says 'change' when there are others than before.
class Models extends EventTarget {
  list = []; // the base first
  #known = '';

  get base() {
    return this.list.find((model) => !model.parent) ?? this.list[0];
  }

  // takes reports whether a model supports a kind of request; chats are assumed if the
  // server does not list any.
  takes(endpoint) {
    const endpoints = this.base?.supported_endpoints;
    return endpoints ? endpoints.includes(`/v1/${endpoint}`) : endpoint === 'chat/completions';
  }

  async refresh() {
    const { data } = await read('v1/models');
    const known = JSON.stringify(data);
    if (known === this.#known) return;
    this.#known = known;
    this.list = data;
    this.dispatchEvent(new Event('change'));
  }
}

export const models = new Models();

// offer updates the options of a select. The selection is kept; if it is
// gone, the option at its position is selected.
export function offer(select, place) {
  const update = () => {
    const chosen = select.value;
    select.replaceChildren(...models.list.map((model) =>
      make('option', { value: model.id }, model.parent ? model.id : `${model.id} (base)`)));
    if (models.list.some((model) => model.id === chosen)) select.value = chosen;
    else select.selectedIndex = Math.min(place, models.list.length - 1);
  };
  models.addEventListener('change', update);
  update();
}

// watch updates the list of models periodically, and passes errors to say.
export function watch(say) {
  const run = repeat(async () => {
    try {
      await models.refresh();
      say(null);
      return 20;
    } catch (error) {
      say(error);
      return 5;
    }
  });
  window.addEventListener('focus', run);
  return run;
}
