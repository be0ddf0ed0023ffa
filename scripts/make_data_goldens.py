"""Writes internal/data/testdata/formats: token ids and labels of rows of each format, by LLaMA-Factory and TRL.

    pip install --no-deps llamafactory==0.9.5 trl==1.16.0 torchaudio datasets==5.2.0 omegaconf==2.4.0
    python scripts/make_data_goldens.py internal/data/testdata/formats

LLaMA-Factory converts rows, and renders them with its own templates. TRL reads conversations and prompts with
completions, and renders them with the chat template of the tokenizer, here the built-in ones of lorafuse. The tokenizer
is the byte-level one of testdata/tokenizers/families/llama3.json with the special tokens of all four templates.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ["DISABLE_VERSION_CHECK"] = "1"  # LLaMA-Factory asks for transformers <= 5.6; only its data code runs here

import datasets
import torch
from llamafactory.data import converter, template
from llamafactory.data.parser import DatasetAttr
from llamafactory.data.processor.supervised import SupervisedDatasetProcessor
from llamafactory.hparams import DataArguments
from tokenizers import AddedToken
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

OUT = Path(sys.argv[1])
ROOT = Path(__file__).parent.parent
TEMPLATES = ["chatml", "gemma", "llama3", "mistral"]
SPECIAL = {
    "chatml": ["<|im_start|>", "<|im_end|>"],
    "gemma": ["<start_of_turn>", "<end_of_turn>"],
    "llama3": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"],
    "mistral": ["[INST]", "[/INST]"],
}

# Rows of each format, with the columns of LLaMA-Factory's dataset_info.json. Contents neither begin nor end with white
# space, except the last row of alpaca.
ALPACA = {"prompt": "instruction", "query": "input", "response": "output", "system": "system", "history": "history"}
SHAREGPT = {"messages": "conversations", "system": "system"}
FORMATS = {
    "alpaca": (ALPACA, [
        {"instruction": "Add the numbers.", "input": "1, 2", "output": "The sum is 3."},
        {"instruction": "Say hi — in French!", "input": "", "output": "Salut, ça va?"},
        {"instruction": "List\ntwo", "output": "- a\n- b\n\nDone"},
        {"instruction": "And then?", "input": "", "output": "It ends.", "system": "You tell tales.",
         "history": [["Begin.", "Once upon a time"], ["Go on.", "a fox\nslept."]]},
        {"instruction": " spaces around ", "input": "", "output": " kept? "},
    ]),
    "ShareGPT": (SHAREGPT, [
        {"conversations": [{"from": "human", "value": "What is 2 + 2?"}, {"from": "gpt", "value": "4"}]},
        {"conversations": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "Größe?"},
                           {"from": "gpt", "value": "10 cm"}, {"from": "human", "value": "日本?"}, {"from": "gpt", "value": "東京 🙂"}]},
        {"conversations": [{"from": "human", "value": "code"}, {"from": "gpt", "value": "```go\nfunc f() {}\n```"}]},
    ]),
    "question/answer": ({"prompt": "question", "response": "answer"}, [{"question": "Who wrote it?", "answer": "A. Turing, in 1936."}]),
    "query/response": ({"prompt": "query", "response": "response"}, [{"query": "x < 3?", "response": "yes\nor no"}]),
    "input/output": ({"prompt": "input", "response": "output"}, [{"input": "A\tB", "output": "C"}]),
    "prompt/response": ({"prompt": "prompt", "response": "response"}, [{"prompt": "Once upon", "response": "a time."}]),
    "prompt and completion messages": (None, [
        {"prompt": [{"role": "user", "content": "Translate: Haus"}], "completion": [{"role": "assistant", "content": "house"}]},
        {"prompt": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"},
                    {"role": "user", "content": "How are you?"}], "completion": [{"role": "assistant", "content": "Fine.\nAnd you?"}]},
    ]),
}


def tokenizer(name=None):
    t = PreTrainedTokenizerFast(tokenizer_file=str(ROOT / "testdata/tokenizers/families/llama3.json"), bos_token="<s>", eos_token="</s>", pad_token="<pad>", clean_up_tokenization_spaces=False)
    t.add_tokens([AddedToken(token, special=True, normalized=False) for tokens in SPECIAL.values() for token in tokens], special_tokens=True)
    if name:
        t.chat_template = (ROOT / f"tokenizer/chat/builtin/{name}.jinja").read_text().removesuffix("\n")
    return t


def llamafactory(name, columns, row):
    """Returns the ids and labels of LLaMA-Factory, or None for formats that it has not."""
    if columns is None:
        return None
    args = DataArguments(template=name, cutoff_len=4096)
    tok = tokenizer()
    made = template.get_template_and_fix_tokenizer(tok, args)
    assert len(tok) == len(tokenizer()), "LLaMA-Factory has added a token"
    attr = DatasetAttr("file", "rows", formatting="sharegpt" if "messages" in columns else "alpaca")
    attr.query = None
    for key, column in columns.items():
        setattr(attr, key, column if column in row else None)
    one = converter.get_dataset_converter(attr.formatting, attr, args)(row)
    out = SupervisedDatasetProcessor(template=made, tokenizer=tok, processor=None, data_args=args).preprocess_dataset({k: [v] for k, v in one.items()})
    return {"ids": out["input_ids"][0], "labels": out["labels"][0]}


def trl(name, row):
    """Returns the ids and labels of TRL for a conversation or a prompt and completion, or None for others."""
    row = {k: v for k, v in row.items() if k in ("prompt", "completion", "conversations")}
    if not row or isinstance(row.get("prompt"), str):
        return None
    if "conversations" in row:  # TRL renames from and value, but not the roles human and gpt, which templates refuse
        roles = {"human": "user", "gpt": "assistant"}
        row = {"conversations": [{**m, "from": roles.get(m["from"], m["from"])} for m in row["conversations"]]}
    torch.manual_seed(0)
    tok = tokenizer(name)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tok), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1))
    with tempfile.TemporaryDirectory() as dir:
        args = SFTConfig(output_dir=dir, report_to=[], max_length=None, use_cpu=True, bf16=False, eos_token=tok.eos_token)
        trainer = SFTTrainer(model=model, args=args, processing_class=tok, train_dataset=datasets.Dataset.from_list([row]))
        batch = trainer.data_collator([trainer.train_dataset[0]])
    out = {"ids": batch["input_ids"][0].tolist()}
    if "completion" in row:  # without one TRL learns all tokens, or those that the template marks
        out["labels"] = batch["labels"][0].tolist()
    return out


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    tokenizer().save_pretrained(OUT / "tokenizer")
    lines = []
    for name, (columns, rows) in FORMATS.items():
        for row in rows:
            for chat in TEMPLATES:
                case = {"format": name, "template": chat, "row": row, "llamafactory": llamafactory(chat, columns, row), "trl": trl(chat, row)}
                lines.append(json.dumps({k: v for k, v in case.items() if v}, ensure_ascii=False))
    (OUT / "golden.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
