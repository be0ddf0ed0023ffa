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

  // takes tells what a model can be asked for; a server that does not say takes chats.
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

// offer keeps the options of a select those that there are. What is chosen stays so, and
// where it is gone the one at that place is chosen.
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

// watch looks for other models from time to time, and says what goes wrong.
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
