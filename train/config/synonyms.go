package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// synonym is the name of a key in other diffusion trainers (diffusers' scripts, FlyMyAI's). Files with task:
// diffusion may use it instead of the key.
type synonym struct {
	key string
	// words maps their values to ours; nil if they are equal.
	words map[string]string
	// only are the values of a name without a key: what is done in any case.
	only []string
	// help is the advice for a name without an equivalent.
	help string
}

var (
	inCache = synonym{help: "pictures have the size that they are cached in: lorafuse data cache --resolution"}
	always  = synonym{only: []string{"true"}, help: "training reads a cache of texts and pictures: lorafuse data cache builds it"}
	eights  = synonym{key: "optimizer", words: map[string]string{"true": "adamw_8bit", "false": "adamw"}}
	images  = synonym{key: "diffusion.images"}
	control = synonym{key: "diffusion.controls"}
	batch   = synonym{key: "batch_size"}
	dropped = synonym{key: "diffusion.caption_dropout_rate"}
	unread  = synonym{help: "nothing reads it here, expected without it"}
	videos  = synonym{help: "videos are not trained on, expected without it"}
	off     = []string{"false"}
	flips   = synonym{only: off, help: "pictures are not flipped: put flipped ones into the folder"}
	repeats = synonym{only: []string{"1"}, help: `pictures are shown as often as "epochs" or "steps" says`}
	trigger = synonym{help: "captions are .txt files: write it into each of them"}
	ema     = synonym{only: off, help: "no mean of weights is kept"}
	prior   = synonym{only: off, help: "put pictures of the class and their captions into the folder"}
	trained = synonym{help: `expected "adapter: {target_modules: [to_k, to_q, to_v, to_out.0]}"`}
	txt     = synonym{only: []string{"txt", ".txt"}, help: "captions are .txt files"}
	single  = synonym{only: []string{"f32", "fp32", "float", "float32"}, help: "adapters are saved in float32"}
)

var synonyms = map[string]synonym{
	"pretrained_model_name_or_path": {key: "model"},
	"img_dir":                       images, "data_config.img_dir": images,
	"control_dir": control, "data_config.control_dir": control,
	"train_batch_size": batch, "data_config.train_batch_size": batch,
	"caption_dropout_rate": dropped, "data_config.caption_dropout_rate": dropped,
	"max_train_steps": {key: "steps"}, "num_train_epochs": {key: "epochs"},
	"lr_scheduler": {key: "schedule"}, "lr_warmup_steps": {key: "warmup_steps"},
	"adam_beta1": {key: "betas"}, "adam_beta2": {key: "betas"}, // see put
	"adam_weight_decay": {key: "weight_decay"}, "adam_epsilon": {key: "eps"},
	"mixed_precision":     {key: "precision", words: map[string]string{"no": "f32", "bf16": "bf16"}},
	"checkpointing_steps": {key: "save_steps"}, "checkpoints_total_limit": {key: "save_limit"},
	"resume_from_checkpoint": {key: "resume"},
	"rank":                   {key: "adapter.r"}, "lora_alpha": {key: "adapter.lora_alpha"},
	"quantize": {key: "quantize", words: map[string]string{"true": "int8", "false": "none", "int8": "int8", "nf4": "nf4", "fp8": "fp8", "qfloat8": "fp8", "none": "none"}},
	"adam8bit": eights, "use_8bit_adam": eights,
	"gradient_checkpointing":         {key: "activation_checkpointing"},
	"disable_gradient_checkpointing": {key: "activation_checkpointing", words: map[string]string{"true": "false", "false": "true"}},
	"report_to":                      {key: "log.tensorboard", words: map[string]string{"tensorboard": "true", "none": "false"}},
	"sample_every":                   {key: "diffusion.sample_every"},
	"sample_prompts":                 {key: "diffusion.sample_prompts"},
	"sample_width":                   {key: "diffusion.sample_width"},
	"sample_height":                  {key: "diffusion.sample_height"},
	"sample_steps":                   {key: "diffusion.sample_steps"},
	"disable_sampling":               {key: "diffusion.draw_samples", words: map[string]string{"true": "false", "false": "true"}},
	"weighting_scheme":               {help: `expected "diffusion.timesteps" for a density, "diffusion.weighting" for a weight of the loss`},

	"precompute_text_embeddings": always, "precompute_image_embeddings": always, "save_cache_on_disk": always,
	"cache_latents": always, "cache_latents_to_disk": always,
	"cache_text_encoder_outputs": always, "cache_text_encoder_outputs_to_disk": always, "cache_text_embeddings": always,
	"freeze_text_encoder":       {only: []string{"true"}, help: "encoders of texts are not trained"},
	"train_text_encoder":        {only: off, help: "encoders of texts are not trained"},
	"data_config.use_bucketing": {only: []string{"true"}, help: "batches are of one size"},
	"data_config.caption_type":  {only: []string{"txt"}, help: "captions are .txt files"},
	"data_config.random_ratio":  {only: []string{"false"}, help: "pictures are not cropped at random"},
	"data_config.img_size":      inCache, "img_size": inCache,
	"data_config.video_dir": videos, "data_config.video_size": videos, "data_config.num_frames": videos,
	"data_config.num_workers": unread, "data_config.pin_memory": unread,
	"logging_dir":          {help: "events go to tensorboard in output_dir, expected without it"},
	"tracker_project_name": unread, "use_fastsafetensors": unread, "fastsafetensors_num_threads": unread,
	"unified_memory": unread, "disable_cpu_offload": unread, "memory_efficient_attention": unread, "expandable_segments": unread,
	"double_blocks": unread, "cuda_features": unread, "aarch64_optimizations": unread,
	"timestep_sampling": {key: "diffusion.timesteps"}, "discrete_flow_shift": {key: "diffusion.shift"},
	"logit_mean": {key: "diffusion.logit_mean"}, "logit_std": {key: "diffusion.logit_std"}, "mode_scale": {key: "diffusion.mode_scale"},
	"sigmoid_scale": {key: "diffusion.sigmoid_scale"}, "guidance_scale": {key: "diffusion.guidance"},
	"validation_prompt": {key: "diffusion.sample_prompts"}, "validation_steps": {key: "diffusion.sample_every"},
	"lr_scheduler_num_cycles": {key: "num_cycles"}, "lr_num_cycles": {key: "num_cycles"}, "lr_scheduler_power": {key: "power"}, "lr_power": {key: "power"},
	"network_dim": {key: "adapter.r"}, "network_alpha": {key: "adapter.lora_alpha"}, "lora_dropout": {key: "adapter.lora_dropout"},
	"save_every_n_steps": {key: "save_steps"}, "logging_steps": {key: "log.steps"},
	"optimizer_type": {key: "optimizer", words: map[string]string{"AdamW": "adamw", "adamw": "adamw", "AdamW8bit": "adamw_8bit", "adamw8bit": "adamw_8bit"}},
	"fp8_base":       {key: "quantize", words: map[string]string{"true": "fp8", "false": "none"}},

	"resolution": inCache, "enable_bucket": {only: []string{"true"}, help: "batches are of one size"},
	"bucket_reso_steps": {help: "pictures have the size that they are cached in: lorafuse data cache --multiple"},
	"center_crop":       {only: []string{"true"}, help: "pictures are cut in the middle"},
	"random_flip":       flips, "flip_aug": flips, "repeats": repeats, "num_repeats": repeats,
	"trigger_word": trigger, "instance_prompt": trigger, "shuffle_caption": {only: off, help: "captions are encoded once, as they are"},
	"caption_extension": txt, "caption_ext": txt,
	"use_ema": ema, "ema_decay": {help: "no mean of weights is kept, expected without it"},
	"with_prior_preservation": prior, "class_data_dir": prior, "class_prompt": prior,
	"layers": trained, "lora_layers": trained, "save_precision": single, "save_dtype": single,
	"max_sequence_length": {help: "texts have the length that they are cached in, expected without it"},
	"blocks_to_swap":      {only: []string{"0"}, help: `expected "memory", in bytes, or "activation_checkpointing" or "quantize"`},
	"validation_epochs":   {help: `expected "diffusion.sample_every", in steps`}, "save_every_n_epochs": {help: `expected "save_steps"`},
	"noise_offset": unread, "min_snr_gamma": unread, "snr_gamma": unread, "network_module": unread, "unet_lr": {help: `expected "learning_rate"`},
	"dataloader_num_workers": unread, "max_data_loader_n_workers": unread, "allow_tf32": unread, "enable_xformers_memory_efficient_attention": unread,
	"push_to_hub": {only: off, help: "nothing is sent to the hub"}, "output_name": unread,
	"disable_quantization": {help: `expected "quantize: none"`},
	"memory_fraction":      {help: `expected "memory" or "memory_limit", in bytes`},
}

// outer is the section of other trainers that is not one here.
const outer = "data_config"

// translate renames the keys of a mapping if its task is diffusion.
func (d decoder) translate(root *yaml.Node) (*yaml.Node, error) {
	root = follow(root)
	task := string(d.config.Task)
	each := func(n *yaml.Node, f func(key, v *yaml.Node) error) error {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if err := f(n.Content[i], n.Content[i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	if root.Kind != yaml.MappingNode {
		return root, nil
	}
	_ = each(root, func(key, v *yaml.Node) error {
		if key.Value == "task" {
			task = follow(v).Value
		}
		return nil
	})
	if task != string(Diffuse) {
		return root, nil
	}
	t := &translation{decoder: d, root: &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: root.Line}, from: map[string]string{}}
	err := each(root, func(key, v *yaml.Node) error {
		if _, known := synonyms[key.Value]; known {
			return nil
		}
		if key.Value == outer && follow(v).Kind == yaml.MappingNode {
			return nil
		}
		t.root.Content = append(t.root.Content, key, v)
		return nil
	})
	if err == nil {
		err = each(root, func(key, v *yaml.Node) error {
			if key.Value == outer && follow(v).Kind == yaml.MappingNode {
				return each(follow(v), func(key, v *yaml.Node) error { return t.name(outer+"."+key.Value, key, v) })
			}
			if _, known := synonyms[key.Value]; known {
				return t.name(key.Value, key, v)
			}
			return nil
		})
	}
	t.alpha()
	return t.root, err
}

// translation is a mapping whose keys are given their names here.
type translation struct {
	decoder
	root *yaml.Node
	from map[string]string // key → what gave it its value
	rank *yaml.Node
}

// name renames the key called name.
func (t *translation) name(name string, key, v *yaml.Node) error {
	s, known := synonyms[name]
	fail := func(kind error, format string, args ...any) error {
		return &Error{t.place(key), name, fmt.Sprintf(format, args...), kind}
	}
	if !known {
		return fail(ErrUnknownKey, "%s", unknown("", key.Value))
	}
	v = follow(v)
	word := v.Value
	if isNull(v) {
		word = "none"
	}
	switch {
	case s.key == "" && len(s.only) == 0:
		return fail(ErrUnknownKey, "%s", s.help)
	case s.key == "":
		if v.Kind != yaml.ScalarNode || !slices.Contains(s.only, word) {
			return fail(ErrValue, "%v, expected %s: %s", found(v), suggest.Or(s.only), s.help)
		}
		return nil
	case s.words != nil:
		to, ok := s.words[word]
		if v.Kind != yaml.ScalarNode || !ok && !isNull(v) {
			return fail(ErrValue, "%v, expected %s", found(v), suggest.Or(slices.Sorted(maps.Keys(s.words))))
		}
		if ok {
			v = &yaml.Node{Kind: yaml.ScalarNode, Value: to, Line: v.Line}
		}
	}
	switch name {
	case "rank", "network_dim":
		t.rank = v
	case "adam_beta1":
		return t.beta(0, v)
	case "adam_beta2":
		return t.beta(1, v)
	}
	if other, ok := t.put(s.key, v); !ok {
		return fail(ErrConflict, "found %s, and %s for %s: expected one of the two", shorten(v.Value), shorten(other.Value), cmp.Or(t.from[s.key], s.key))
	}
	t.from[s.key] = name
	return nil
}

// at returns the value at a dotted path, or nil if there is none; with make it then adds a new mapping.
func (t *translation) at(path string, make bool) *yaml.Node {
	n := t.root
	for name := range strings.SplitSeq(path, ".") {
		if make && isNull(n) {
			*n = yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
		}
		i := 0
		for i+1 < len(n.Content) && n.Content[i].Value != name {
			i += 2
		}
		if i+1 >= len(n.Content) {
			if !make {
				return nil
			}
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name, Line: n.Line}, &yaml.Node{Kind: yaml.MappingNode, Line: n.Line})
		}
		n = follow(n.Content[i+1])
	}
	return n
}

// put sets a key. If the key has a value already, put returns that, and whether it equals v.
func (t *translation) put(path string, v *yaml.Node) (other *yaml.Node, ok bool) {
	if is := t.at(path, false); is != nil {
		return is, is.Kind == yaml.ScalarNode && v.Kind == yaml.ScalarNode && is.Value == v.Value
	}
	*t.at(path, true) = *v
	return nil, true
}

// beta sets element i of betas.
func (t *translation) beta(i int, v *yaml.Node) error {
	betas := t.at("betas", false)
	if betas == nil {
		betas = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: v.Line}
		for _, b := range Default().Betas {
			betas.Content = append(betas.Content, encode(b))
		}
		t.put("betas", betas)
		betas = t.at("betas", false)
	}
	if betas.Kind == yaml.SequenceNode && len(betas.Content) == 2 {
		betas.Content[i] = v
	}
	return nil
}

// alpha sets lora_alpha to the rank if it is not given, since the other trainers have no such key.
func (t *translation) alpha() {
	if t.rank != nil && t.at("adapter.lora_alpha", false) == nil {
		t.put("adapter.lora_alpha", t.rank)
	}
}
