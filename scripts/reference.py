"""The PyTorch side that the scripts of this folder share: loading, tokenising, evaluating, the training rules."""
import json
import os
import sys
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

try:
    import torch
    from peft import PeftConfig, get_peft_model
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer, get_cosine_schedule_with_warmup, logging
except ImportError as error:
    sys.exit(f"{error}: pip install -r scripts/requirements.txt")

warnings.filterwarnings("ignore", category=FutureWarning)  # PEFT uses names that transformers has deprecated
logging.set_verbosity_error()
logging.disable_progress_bar()

IGNORE = -100  # a label that carries no loss


def fail(message):
    """Ends the script with a one-line error."""
    sys.exit(f"{os.path.basename(sys.argv[0])}: {message}")


def load_model(directory, dtype=torch.float32):
    """The causal model of a folder, weights cast to dtype, eager attention, eval mode."""
    if not os.path.exists(os.path.join(directory, "config.json")):
        fail(f"{directory}: not a model folder, config.json is missing")
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        whole = "ForConditionalGeneration" in str(json.load(file).get("architectures"))
    kind = AutoModelForImageTextToText if whole else AutoModelForCausalLM
    return kind.from_pretrained(directory, dtype=dtype, attn_implementation="eager").eval()


def load_tokenizer(directory):
    if not os.path.exists(os.path.join(directory, "tokenizer.json")):
        fail(f"{directory}: tokenizer.json is missing")
    return AutoTokenizer.from_pretrained(directory)


def load_adapter(model, directory, trainable=False):
    """Adds the adapter of a folder to the model; any missing or unexpected tensor is an error.

    trainable: its tensors get gradients.
    PeftModel.from_pretrained keeps silent about unexpected tensors, so the result of load_adapter is judged.
    """
    if not os.path.exists(os.path.join(directory, "adapter_config.json")):
        fail(f"{directory}: not an adapter folder, adapter_config.json is missing")
    config = PeftConfig.from_pretrained(directory)
    config.inference_mode = not trainable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = get_peft_model(model, config)
        try:
            result = wrapped.load_adapter(directory, adapter_name="default", is_trainable=trainable)
        except (RuntimeError, KeyError) as error:  # wrong shapes, one per line; a missing saved module
            raise ValueError(f"{directory}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    if result.missing_keys or result.unexpected_keys:
        raise ValueError(
            f"{directory}: PEFT finds {len(result.missing_keys)} missing and {len(result.unexpected_keys)} unexpected tensors:"
            f" missing {result.missing_keys[:5]}, unexpected {result.unexpected_keys[:5]}"
        )
    return wrapped.eval()


def read_jsonl(path):
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.strip()]
    except (OSError, json.JSONDecodeError) as error:
        fail(f"{path}: {error}")


def encode_pairs(tokenizer, rows, max_length=None):
    """[(ids, labels)] of prompt/completion rows.

    Prompt and completion are tokenised apart and joined, then the end token; the loss is on the completion and the end token.
    """
    pairs = []
    for row in rows:
        prompt = tokenizer(row["prompt"], add_special_tokens=False).input_ids
        answer = tokenizer(row["completion"], add_special_tokens=False).input_ids + [tokenizer.eos_token_id]
        ids, labels = prompt + answer, [IGNORE] * len(prompt) + answer
        pairs.append((ids[:max_length], labels[:max_length]))
    return pairs


def collate(pairs, pad_id):
    """A right-padded batch; a causal model needs no mask for padding that no label looks at."""
    length = max(len(ids) for ids, _ in pairs)
    ids = torch.tensor([i + [pad_id] * (length - len(i)) for i, _ in pairs])
    labels = torch.tensor([l + [IGNORE] * (length - len(l)) for _, l in pairs])
    return ids, labels


@torch.no_grad()
def eval_loss(model, pairs, pad_id, batch_size=32):
    """(total negative log-likelihood / tokens, tokens) over all labels: not a mean of batch means."""
    model.eval()
    total, count = 0.0, 0
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]))
    for start in range(0, len(order), batch_size):
        ids, labels = collate([pairs[i] for i in order[start : start + batch_size]], pad_id)
        logits = model(input_ids=ids).logits[:, :-1].float()
        target = labels[:, 1:]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=IGNORE, reduction="sum")
        total += float(loss.double())
        count += int((target != IGNORE).sum())
    return total / count, count


def trainable(model):
    """{name: parameter} of the parameters that the optimizer updates."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


class Optimizer:
    """AdamW with decoupled decay on every trainable tensor, clipping before the step, cosine with warm-up."""

    def __init__(self, parameters, steps, lr, warmup_steps, weight_decay, max_grad_norm, betas=(0.9, 0.999), eps=1e-8):
        self.parameters = list(parameters)
        self.max_grad_norm = max_grad_norm
        self.adamw = torch.optim.AdamW(self.parameters, lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay)
        self.schedule = get_cosine_schedule_with_warmup(self.adamw, warmup_steps, steps)

    @property
    def lr(self):
        return self.schedule.get_last_lr()[0]

    def step(self):
        """Clips by min(1, max_grad_norm / (norm + 1e-6)), updates, advances the schedule; returns the norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm)
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        self.schedule.step()
        return float(norm)


def save_tensors(path, tensors):
    """Writes a safetensors file of contiguous tensors, through a temporary name."""
    save_file({name: t.detach().contiguous() for name, t in tensors.items()}, path + ".tmp")
    os.replace(path + ".tmp", path)


def read_tensors(path):
    try:
        return load_file(path)
    except Exception as error:  # safetensors and the file system raise different types
        fail(f"{path}: {error}")


def save_json(path, data, indent=1):
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(data, file, indent=indent, ensure_ascii=False)
        file.write("\n")
    os.replace(path + ".tmp", path)
