// Package config defines the settings of a training run: the YAML file of `lorafuse train`. Each
// key is a field of [Config], whose struct tags hold its name, default, valid values and
// description. Decoding, --set overrides, checks, suggestions for mistyped keys and the reference
// page are generated from these tags.
//
// Load reads a file. Default returns the defaults, which can be changed by [Config.Set] or in Go
// and checked by [Config.Validate].
package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/train/schedule"
)

// Config is a whole training run. The tags of a field:
//
//	yaml     name of the key
//	default  default value, written as YAML
//	range    interval of the valid numbers, such as [0,1) or [1,inf)
//	one      valid words, separated by |; a type with its own UnmarshalText parses them
//	need     "yes" if the key is required, "text" if it must not be empty
//	task     the task that the key belongs to, or "texts" for all tasks that read texts; other
//	         tasks accept only its default value
//	also     names of the key in other trainers, for error messages
//	doc      description, with the unit
//
// Ranges have upper bounds so that no product of settings overflows: steps and token positions
// fit into 32 bits, a step has at most 2²⁰ × 2²⁰ rows, products of rates and scales fit into
// float32, and the rank of an adapter does not exceed the width of any layer.
type Config struct {
	Model       string `yaml:"model" need:"yes" also:"base_model,model_name_or_path,pretrained_model_name_or_path,model_path" doc:"Folder of a Hugging Face checkpoint, or its name on the hub as owner/name[@revision]."`
	OutputDir   string `yaml:"output_dir" default:"output" need:"text" also:"adapter_path,output,save_dir" doc:"Folder that receives the adapter, the checkpoints, the metrics and the plots."`
	InitAdapter string `yaml:"init_adapter" also:"resume_adapter_file,lora_model_dir,adapter_name_or_path" doc:"Folder of a PEFT adapter to continue training; for task: diffusion also a file of diffusers, kohya or ComfyUI. Its configuration replaces the adapter block, which may then set lora_dropout only. A tokenizer and chat template in the folder take precedence over the model's, and are saved with the new adapter."`
	Resume      string `yaml:"resume" also:"resume_from_checkpoint" doc:"latest resumes from the newest checkpoint in output_dir, and fails if there is none; a folder resumes from that checkpoint; empty starts a new run. Settings that affect the numbers must be unchanged (data, weights, precision, seed, batches, optimizer, adapter); logs, checkpoints, threads, memory and paths may change."`

	Task           Task           `yaml:"task" default:"language" also:"task_type,objective,loss" doc:"Training task."`
	Embedding      Embedding      `yaml:"embedding" task:"embedding"`
	Preference     Preference     `yaml:"preference" task:"preference" also:"dpo"`
	Classification Classification `yaml:"classification" task:"classification"`

	Diffusion Diffusion `yaml:"diffusion" task:"diffusion"`

	Adapter Adapter `yaml:"adapter" also:"lora,lora_config,lora_parameters,peft" doc:"The LoRA adapter, by the names of PEFT's LoraConfig."`
	Data    Data    `yaml:"data" also:"dataset,datasets,data_config" doc:"Training and evaluation data. Files are JSON lines, JSON arrays, CSV or TSV with a header, Parquet, plain text, or safetensors with token IDs (input_ids, labels), each also compressed by gzip or zstd; their contents decide. The columns of a row are text, or prompt and completion (text, or messages as TRL has them), or messages (and tools), or a question with its answer: instruction (and input or context, system, history) and output or response (alpaca), question and answer or response, query and response, input and output, prompt and response; or conversations with from and value (ShareGPT). Questions and conversations become messages, which the chat template renders. One line reports what was found. With task: embedding it holds anchor and positive (and negative); with task: classification text (and text_pair) and label. With task: preference it has TRL's format (prompt, chosen and rejected, as text or messages; or chosen and rejected messages with a common prefix) or OpenAI's (input with messages and tools, preferred_output and non_preferred_output). An assistant message with \"weight\": 0 carries no loss; content in parts must be text. Other columns are ignored, except unsupported training targets (label, weight, rejected, images, …), which are refused."`

	BatchSize                 int     `yaml:"batch_size" default:"8" range:"[1,1048576]" also:"per_device_train_batch_size,train_batch_size,micro_batch_size" doc:"Rows of one micro-batch, that is of one forward and backward pass."`
	GradientAccumulationSteps int     `yaml:"gradient_accumulation_steps" default:"1" range:"[1,1048576]" also:"gradient_accumulation,grad_accumulation_steps,accumulate_grad_batches" doc:"Micro-batches of one optimizer step. The loss is the mean over all tokens of the step, so it does not depend on the split."`
	Epochs                    float64 `yaml:"epochs" default:"3" range:"[0,1000000]" also:"num_train_epochs,num_epochs,max_epochs" doc:"Passes over the training data; parts of one are allowed. Give epochs or steps."`
	Steps                     int     `yaml:"steps" default:"0" range:"[0,2147483647]" also:"max_steps,max_train_steps,iters,num_steps,train_steps" doc:"Optimizer steps of the run; 0 leaves it to epochs."`

	LearningRate float64       `yaml:"learning_rate" default:"2e-4" range:"[0,1e30]" also:"lr" doc:"Learning rate after the warm-up."`
	Schedule     schedule.Kind `yaml:"schedule" default:"linear" one:"constant|constant_with_warmup|linear|cosine|cosine_with_restarts|polynomial" also:"lr_scheduler_type,lr_scheduler,scheduler,lr_schedule" doc:"How the learning rate falls, by the formulas of transformers. constant has no warm-up."`
	WarmupSteps  int           `yaml:"warmup_steps" default:"0" range:"[0,2147483647]" also:"lr_warmup_steps,warmup" doc:"Steps in which the learning rate rises from 0. Give warmup_steps or warmup_ratio."`
	WarmupRatio  float64       `yaml:"warmup_ratio" default:"0" range:"[0,1]" doc:"The warm-up as a part of all steps, rounded up."`
	NumCycles    float64       `yaml:"num_cycles" default:"0" range:"[0,1000000]" doc:"Waves of cosine, cycles of cosine_with_restarts; 0 is the schedule's own: 0.5 and 1."`
	Power        float64       `yaml:"power" default:"1" range:"(0,1000]" doc:"Exponent of the polynomial schedule."`
	LREnd        float64       `yaml:"lr_end" default:"1e-7" range:"[0,1e30]" also:"min_lr" doc:"Last learning rate of the polynomial schedule."`

	Optimizer   string     `yaml:"optimizer" default:"adamw" one:"adamw|adamw_8bit" also:"optim" doc:"Optimizer; adamw decays the weights apart from the gradient. adamw_8bit keeps its two moments in 8 bits each, with a scale for each 256 numbers, as bitsandbytes' AdamW8bit does; trained tensors of fewer than 4096 numbers keep them in 32."`
	Betas       [2]float64 `yaml:"betas" default:"[0.9, 0.999]" range:"[0,1)" also:"adam_beta1,adam_beta2,beta1,beta2" doc:"Decay rates of AdamW's two moments."`
	Eps         float64    `yaml:"eps" default:"1e-8" range:"[1e-30,1000]" also:"adam_epsilon,epsilon,adam_eps" doc:"Added to the root of AdamW's second moment."`
	WeightDecay float64    `yaml:"weight_decay" default:"0" range:"[0,1000]" also:"adam_weight_decay" doc:"Weight decay per unit of learning rate, on every trained tensor."`
	MaxGradNorm float64    `yaml:"max_grad_norm" default:"1" range:"[0,1e30]" also:"gradient_clipping,gradient_clip_val,clip_grad_norm,grad_clip" doc:"Gradients are scaled down to this norm over all trained tensors; 0 never clips."`

	Seed                    uint64    `yaml:"seed" default:"42" also:"random_seed,random_state" doc:"Key of every random draw: the adapter's start, dropout, the order of the rows."`
	ActivationCheckpointing bool      `yaml:"activation_checkpointing" default:"false" also:"gradient_checkpointing,grad_checkpoint" doc:"Recompute each layer in the backward pass instead of keeping its activations: less memory, more time."`
	OnNaN                   NaNPolicy `yaml:"on_nan" default:"stop" one:"stop|skip" also:"nan_policy" doc:"Reaction to a loss or gradient that is not finite: stop the run, or skip the step."`
	NaNLimit                int       `yaml:"nan_limit" default:"10" range:"[1,2147483647]" doc:"With on_nan: skip, stop after this many consecutive skipped steps."`

	EvalSteps     int           `yaml:"eval_steps" task:"texts" default:"0" range:"[0,2147483647]" also:"eval_every,steps_per_eval,eval_interval" doc:"Evaluate every so many steps; 0 is once per epoch."`
	EvalAtStart   bool          `yaml:"eval_at_start" task:"texts" default:"false" also:"eval_on_start" doc:"Evaluate before the first step."`
	EvalAtEnd     bool          `yaml:"eval_at_end" task:"texts" default:"true" doc:"Evaluate after the last step."`
	EvalBatchSize int           `yaml:"eval_batch_size" task:"texts" default:"0" range:"[0,1048576]" also:"per_device_eval_batch_size" doc:"Rows of one evaluation batch; 0 is batch_size."`
	EarlyStopping EarlyStopping `yaml:"early_stopping" doc:"Stop when best_metric no longer improves."`
	SaveSteps     int           `yaml:"save_steps" default:"500" range:"[0,2147483647]" also:"checkpointing_steps,save_every,save_interval" doc:"Write a checkpoint every so many steps; 0 never does."`
	SaveLimit     int           `yaml:"save_limit" default:"3" range:"[0,2147483647]" also:"save_total_limit,checkpoints_total_limit" doc:"Number of newest checkpoints to keep; 0 keeps all."`

	SaveBest      bool    `yaml:"save_best" task:"texts" default:"false" also:"load_best,load_best_model_at_end" doc:"Keep the adapter of the best evaluation in best in output_dir, next to the adapter of the last step; best.json there names step and value. Evaluations after the first step count."`
	BestMetric    string  `yaml:"best_metric" task:"texts" default:"eval_loss" one:"eval_loss|eval_accuracy" also:"metric_for_best_model" doc:"What save_best and early_stopping compare: the lowest eval_loss, or the highest eval_accuracy."`
	SampleEvery   int     `yaml:"sample_every" default:"0" range:"[0,2147483647]" also:"validation_steps,diffusion.sample_every" doc:"Generate samples every so many steps and after the last; 0 never does. For task: language and task: preference texts, greedily, with the adapter as it is then: they are printed, and written to samples in output_dir and to TensorBoard. For task: diffusion pictures of the same noise without the adapter and with it, side by side: samples/step-….png in output_dir, and in TensorBoard."`
	SamplePrompts Strings `yaml:"sample_prompts" task:"texts" doc:"Prompts of the sample texts. If the model has a chat template, each is a message of the user. Without it, the prompts of the first three rows of data.eval or else data.train are continued; of a text without a prompt, its first tokens."`
	SampleTokens  int     `yaml:"sample_tokens" task:"texts" default:"64" range:"[1,1048576]" doc:"Tokens of a sample text at most."`

	Backend            string            `yaml:"backend" default:"auto" one:"auto|cpu|cuda|metal" also:"device" doc:"Machine to train on; auto takes the fastest there is."`
	Devices            Devices           `yaml:"devices" also:"gpu_ids" doc:"Devices of the backend that share each step: all, an index or a list of indices; empty is the first. Each device computes some of the micro-batches, so gradient_accumulation_steps must be at least their number. Results do not depend on it. The CPU is one device."`
	DistributedTimeout Duration          `yaml:"distributed_timeout" default:"10m" range:"[1,31536000]" doc:"With several devices or MPI ranks, how long one waits for another, such as 10m or 90s, before the run ends with status 75."`
	Threads            int               `yaml:"threads" default:"0" range:"[0,1024]" also:"num_threads" doc:"Threads of the CPU backend; 0 is as many as Go runs at once, which is one per core, or less where GOMAXPROCS or the limits of a container say so. Results do not depend on it."`
	Precision          backend.Precision `yaml:"precision" default:"auto" one:"auto|f32|bf16" also:"mixed_precision" doc:"Precision of matrix multiplications: auto (f32 on the CPU, bf16 on CUDA), f32, or bf16 if the device multiplies that faster (operands rounded as in PyTorch's autocast, sums in f32). With bf16 activations are also stored in bf16, in half of the memory, if the device can. A run resumes in its original precision."`
	BatchInvariant     bool              `yaml:"batch_invariant" default:"false" also:"deterministic_batches" doc:"Make the result for a row independent, bit for bit, of the other rows of its batch and their number: its evaluation loss is the same at any eval_batch_size, and its logits equal those of generate --batch-invariant. Gradients are sums over the rows of a micro-batch and still depend on batch_size. On the CPU a layer in bf16 takes about 1.06, 0.97, 0.99 and 1.2 times as long at 1, 8, 64 and 512 rows; CUDA does not support it."`
	Pack               backend.Pack      `yaml:"pack" default:"never" one:"never|auto|always" doc:"Packed copies of frozen weights, made on first use: never, always, or auto, which makes them if they save 3 % of a step, within half of the free memory or the rest of memory. They save 4 to 8 % with micro-batches of at most 128 tokens in f32 and 5 to 20 % with at most 256 in bf16, less than 3 % beyond that. They take four times (bf16: twice) the memory of bf16 weights. Results are bit-equal."`
	Load               backend.LoadMode  `yaml:"load" default:"auto" one:"auto|ring|register|plain" doc:"Upload method for a device with its own memory: ring reads into slots of pinned memory, from which the device copies; register pins the mapped files; plain leaves it to the driver; auto picks the fastest for the first bytes and reports it. The CPU uses weights in place; auto and plain both mean that there."`
	Memory             Bytes             `yaml:"memory" default:"0" also:"memory_budget" doc:"Total memory budget, such as 4GiB: the run recomputes as few layers as possible, and if that is not enough, splits micro-batches. The plan is printed; if no plan fits, the error says how much is missing. 0 disables planning."`
	Quantize           quant.Method      `yaml:"quantize" default:"none" one:"none|int8|nf4|fp8" also:"load_in_4bit,load_in_8bit,quantization,bnb_4bit_quant_type" doc:"Quantize the frozen weights of linear layers on load (QLoRA). int8 takes 8.5 bits per weight; nf4 4.5, with the code book and blocks of bitsandbytes; fp8 8, as F8_E4M3 with a scale per row. fp8 is less accurate than int8 and, on the CPU, slower, since weights are widened one layer at a time when they are read. Embeddings, norms and the head are not quantized; weights that are stored quantised need no key."`
	MemoryLimit        Bytes             `yaml:"memory_limit" default:"0" also:"max_memory" doc:"Refuse a plan that needs more than this, such as 8GiB; 0 is what the machine has free."`
	Log                Log               `yaml:"log" doc:"Logs and metrics."`

	Jobs Jobs `yaml:"jobs" task:"texts" doc:"Several concurrent runs on one model: a list of mappings, each with a name and the keys that differ from the keys outside jobs (data, adapter, learning_rate, seed, steps, …). Shared by all jobs are model, quantize, task, backend, devices, distributed_timeout, threads, precision, batch_invariant, pack, load, memory_limit and resume. The adapter of a job is bit for bit that of a separate run; its default output_dir is output_dir/name. The weights are in memory once. With batch_invariant: true micro-batches of several jobs are computed in one pass of at most 1024 tokens. Jobs alternate step by step without it, with quantised weights, for task: preference, or if an adapter is not plain LoRA or has biases, saved modules, embeddings or a part in the head. A failed job does not affect the others. On several devices or MPI ranks, each trains some of the jobs, or several share one if there are more devices than jobs. Only for language models; memory is for a single run."`

	places map[string]string // key → place that set it: file:line or --set
	idle   []string          // places and names of keys without effect
}

// Data configures the rows: files, learned parts and order.
type Data struct {
	Train             Strings      `yaml:"train" task:"texts" need:"yes" also:"train_file,train_files,path,paths,files" doc:"Files to train on, read as one; also folders, patterns such as data/*.parquet, and datasets of the Hugging Face Hub: owner/name[@revision][:split] or owner/name[@revision]:config:split; the default split is train."`
	Eval              Strings      `yaml:"eval" task:"texts" also:"val,valid,validation,test,eval_file,eval_files,validation_file" doc:"Files to evaluate on, in file order; named like those of train."`
	EvalFraction      float64      `yaml:"eval_fraction" task:"texts" default:"0" range:"[0,1)" also:"val_size,val_set_size,test_size,validation_split,eval_split_ratio" doc:"Part of the training rows to evaluate on instead of training on them, drawn by seed; at least one row. Give eval or eval_fraction."`
	Mix               Numbers      `yaml:"mix" task:"texts" range:"(0,1e30]" also:"mix_weights,interleave_probs,dataset_weights,probabilities" doc:"Weights of the entries of train, one number each: the shares of the rows of an epoch. An epoch has as many rows as all entries together. Rows of an entry with a larger share than its own come several times, and of others a part comes in each epoch; no row comes again before all rows of its entry have come."`
	Columns           Columns      `yaml:"columns" task:"texts" also:"column_mapping,field_mapping" doc:"Columns of the files under other names: a mapping of our name to theirs, such as {prompt: question, completion: answer}."`
	IgnoreColumns     Strings      `yaml:"ignore_columns" task:"texts" also:"remove_columns,drop_columns" doc:"Columns of the files that are not read."`
	Format            data.Format  `yaml:"format" task:"texts" default:"auto" one:"auto|jsonl|json|csv|tsv|parquet|text|tokens" also:"type" doc:"Format of the files; auto goes by their contents, and for text by the ending of the name."`
	TrainOn           data.TrainOn `yaml:"train_on" task:"texts" default:"answer" one:"answer|all" also:"mask_prompt,train_on_inputs,completion_only_loss,assistant_only_loss" doc:"Tokens that carry loss: completions and answers alone, or prompts too. Plain text always counts in full."`
	MaxLength         int          `yaml:"max_length" task:"texts" default:"1024" range:"[2,2147483647]" also:"max_seq_length,max_seq_len,sequence_len,cutoff_len,block_size" doc:"Longest row in tokens."`
	OnTooLong         data.TooLong `yaml:"on_too_long" task:"texts" default:"truncate" one:"truncate|drop|error" also:"truncation" doc:"Handling of a longer row: cut at its end, left out, or an error. Cuts are counted and reported; one that leaves no answer token is an error."`
	DocumentSeparator string       `yaml:"document_separator" task:"texts" also:"separator" doc:"Splits plain text into documents, one row each: the separating text, or blank-line. Without it the whole file is cut into windows of max_length."`
	ChatTemplate      string       `yaml:"chat_template" task:"texts" doc:"File with a Jinja template for messages, or a built-in template for base models without one: chatml, gemma, llama3 or mistral; empty is the tokenizer's own."`
	Shuffle           bool         `yaml:"shuffle" default:"true" doc:"Draw the rows in a new order in each epoch. Recorded batches are never shuffled."`
	Packing           bool         `yaml:"packing" task:"texts" default:"false" also:"sample_packing" doc:"Fill rows of max_length with several documents, which do not see each other."`
	LengthBucketing   bool         `yaml:"length_bucketing" task:"texts" default:"false" also:"group_by_length,bucketing,use_bucketing" doc:"Make batches of rows of similar length."`
	DropLast          bool         `yaml:"drop_last" default:"false" also:"dataloader_drop_last" doc:"Leave out the rows that do not fill the last step of an epoch."`
}

// EarlyStopping stops a run whose BestMetric no longer improves.
type EarlyStopping struct {
	Patience int     `yaml:"patience" task:"texts" default:"0" range:"[0,2147483647]" also:"early_stopping_patience" doc:"Evaluations without a better best_metric before the run stops; 0 never stops."`
	MinDelta float64 `yaml:"min_delta" task:"texts" default:"0" range:"[0,1e30]" also:"early_stopping_threshold,threshold" doc:"An evaluation is better if its best_metric improves by more than this."`
}

// Log configures the records that are written in addition to the adapter.
type Log struct {
	Steps       int  `yaml:"steps" default:"1" range:"[1,2147483647]" also:"logging_steps,log_every" doc:"Record every so many steps."`
	Metrics     bool `yaml:"metrics" default:"true" doc:"Write metrics.jsonl: one line per recorded step and per evaluation."`
	TensorBoard bool `yaml:"tensorboard" default:"true" doc:"Write event files for TensorBoard."`
	MLflow      bool `yaml:"mlflow" default:"false" doc:"Log metrics and the given settings to MLflow. MLFLOW_TRACKING_URI names the server, MLFLOW_EXPERIMENT_NAME the experiment; MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN authenticate. A server that does not answer never stops a run."`
	Plot        bool `yaml:"plot" default:"true" doc:"Draw loss.svg at the end."`
}

// Default returns the configuration of an empty file. It is not valid yet: it names neither a model nor data.
func Default() *Config {
	c := &Config{places: map[string]string{}}
	setDefaults(c)
	return c
}

// defaults returns a shared Default, which must not be changed.
var defaults = sync.OnceValue(Default)

// Load reads the YAML file at path, applies the overrides in order, each written as key=value with a dotted key, and
// validates the result. Errors are one line with file and line, the key, the value found and the expected one.
func Load(path string, sets ...string) (*Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return Parse(path, raw, sets...)
}

// Parse parses YAML as Load does; name replaces the file name in errors.
func Parse(name string, raw []byte, sets ...string) (*Config, error) {
	c := Default()
	for _, s := range sets {
		if name, ok := strings.CutPrefix(s, "task="); ok && slices.Contains(Tasks(), name) {
			c.Task = Task(name) // whose files may have keys of their own
		}
	}
	if err := c.decode(name, raw); err != nil {
		return nil, err
	}
	for _, s := range sets {
		if err := c.Set(s); err != nil {
			return nil, err
		}
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// Given reports whether the file or an override gave the key.
func (c *Config) Given(key string) bool {
	_, ok := c.places[key]
	return ok
}

// LearningRates returns the schedule of a run of steps optimizer steps.
func (c *Config) LearningRates(steps int) (*schedule.Schedule, error) {
	warmup := c.WarmupSteps
	if warmup == 0 {
		warmup = schedule.WarmupSteps(c.WarmupRatio, steps)
	}
	return schedule.New(schedule.Config{
		Kind:         c.Schedule,
		LearningRate: c.LearningRate,
		Steps:        steps,
		WarmupSteps:  warmup,
		NumCycles:    c.NumCycles,
		Power:        c.Power,
		LREnd:        c.LREnd,
	})
}
