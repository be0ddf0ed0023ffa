// The form that starts a job from files of rows.

import { upload, words, write } from './api.js';
import { bytes, get, plural, say, show } from './dom.js';
import { models, offer } from './models.js';

const glance = 1 << 20; // bytes of a file that are looked at before it is sent

// forms holds the expected forms of rows for chat models and for completion models.
const forms = {
  supervised: [
    'Each row is a conversation: {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}',
    'Each row is a text and how it goes on: {"prompt": "…", "completion": "…"}',
  ],
  dpo: [
    'Each row is a prompt with two answers: {"input": {"messages": […]}, "preferred_output": […], "non_preferred_output": […]}',
    'Each row is a text and two ways to go on: {"prompt": "…", "chosen": "…", "rejected": "…"}',
  ],
};

const describe = () => {
  const form = forms[get('method').value][models.takes('chat/completions') ? 0 : 1];
  get('method-about').textContent = form;
};

// rows checks the beginning of a file of rows, and returns an error or the number of
// rows.
export function rows(text, whole) {
  const lines = text.split('\n');
  if (!whole) lines.pop(); // it is cut
  let found = 0;
  for (const [i, line] of lines.entries()) {
    if (line.trim() === '') continue;
    let row;
    try {
      row = JSON.parse(line);
    } catch {
      return { wrong: `Line ${i + 1} is not JSON.` };
    }
    if (row === null || typeof row !== 'object' || Array.isArray(row)) return { wrong: `Line ${i + 1} is no JSON object.` };
    found++;
  }
  return found === 0 && whole ? { wrong: 'There are no rows.' } : { found };
}

async function look(field, about) {
  const file = field.files[0];
  field.setCustomValidity('');
  if (!file) {
    about.textContent = '';
    return;
  }
  const whole = file.size <= glance;
  const { wrong, found } = rows(await file.slice(0, glance).text(), whole);
  if (file !== field.files[0]) return; // another one was chosen in between
  field.setCustomValidity(wrong ?? '');
  about.textContent = wrong ?? (whole ? `${plural(found, 'row')}, ${bytes(file.size)}` : bytes(file.size));
  about.classList.toggle('error', Boolean(wrong));
}

// hyperparameters returns the values that are filled in; the server chooses the others.
function hyperparameters() {
  const all = {};
  for (const [id, name] of [['epochs', 'n_epochs'], ['batch-size', 'batch_size'], ['rate', 'learning_rate_multiplier']]) {
    const value = get(id).valueAsNumber;
    if (!Number.isNaN(value)) all[name] = value;
  }
  return all;
}

async function send() {
  const train = get('train-file').files[0], valid = get('valid-file').files[0];
  const bar = get('upload'), status = get('start-status');
  const all = train.size + (valid?.size ?? 0);
  bar.value = 0;
  bar.hidden = false;
  status.textContent = `Sending ${bytes(all)} …`;
  const job = { model: get('origin').value };
  job.training_file = await upload(train, (part) => (bar.value = (part * train.size) / all));
  if (valid) job.validation_file = await upload(valid, (part) => (bar.value = (train.size + part * valid.size) / all));
  status.textContent = 'Starting the job …';
  const type = get('method').value;
  const numbers = hyperparameters();
  job.method = { type, [type]: Object.keys(numbers).length > 0 ? { hyperparameters: numbers } : {} };
  const rank = get('rank').valueAsNumber;
  if (!Number.isNaN(rank)) job.lora = { r: rank };
  const suffix = get('suffix').value.trim();
  if (suffix) job.suffix = suffix;
  return write('v1/fine_tuning/jobs', job);
}

// start readies the form; begun is called with each job that it begins.
export function start(begun) {
  for (const name of ['train', 'valid']) {
    get(`${name}-file`).addEventListener('change', () => look(get(`${name}-file`), get(`${name}-about`)));
  }
  offer(get('origin'), 0);
  get('method').addEventListener('change', describe);
  models.addEventListener('change', describe);
  describe();
  get('start-form').addEventListener('submit', async (event) => {
    event.preventDefault();
    const button = get('start-button'), status = get('start-status');
    if (button.disabled) return;
    button.disabled = true;
    status.classList.remove('error');
    try {
      const job = await send();
      status.textContent = '';
      get('start-form').reset();
      for (const id of ['train-about', 'valid-about']) get(id).textContent = '';
      describe();
      get('start').open = false;
      say('The job is created');
      begun(job);
    } catch (error) {
      status.textContent = words(error);
      status.classList.add('error');
    } finally {
      get('upload').hidden = true;
      button.disabled = false;
    }
  });
}
