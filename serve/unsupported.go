package serve

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"sync"
)

// unsupportedField describes a request field that OpenAI, vLLM, SGLang, llama.cpp, TGI, Ollama or
// another compatible server supports and this endpoint does not.
type unsupportedField struct {
	off  []any  // values that leave the feature off; null always does
	with string // the field that turns the feature on; if that is off, this one is too
	hint string // follows "not supported" in the error message
	noOp bool   // no value of the field affects an answer
}

// off returns a field that is accepted only with one of the values, given as JSON.
func off(values ...string) unsupportedField {
	var f unsupportedField
	for _, text := range values {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			panic(err) // a mistake in the table
		}
		f.off = append(f.off, v)
	}
	return f
}

// needs sets the field that turns the feature on.
func (f unsupportedField) needs(field string) unsupportedField { f.with = field; return f }

// instead sets the hint of the error message.
func (f unsupportedField) instead(hint string) unsupportedField { f.hint = hint; return f }

// noOp is a field that is accepted and ignored, since it affects only accounting, caching or speed.
var noOp = unsupportedField{noOp: true}

const (
	useTemplateArgs = "; chat_template_kwargs passes variables to the chat template"
	useGuidedJSON   = "; guided_json is"
	useMaxTokens    = "; max_tokens is"
	usePenalty      = "; repetition_penalty is, over the prompt and the whole answer"
)

// unsupported holds fields of other servers, which this one refuses. An endpoint looks up fields that
// it does not read: a value that would affect the answer is an error. It also includes fields that
// only some endpoints read.
var unsupported = map[string]unsupportedField{
	// Sampling.
	"typical_p":                  off("1", "0").instead("; top_p and min_p are"),
	"typical":                    off("1", "0"),
	"tfs_z":                      off("1", "0"),
	"tfs":                        off("1", "0"),
	"top_a":                      off("0"),
	"top_n_sigma":                off("0", "-1"),
	"nsigma":                     off("0", "-1"),
	"epsilon_cutoff":             off("0"),
	"eta_cutoff":                 off("0"),
	"dynatemp_range":             off("0"),
	"dynatemp_exponent":          off("1").needs("dynatemp_range"),
	"dynamic_temperature":        off("false"),
	"dynatemp_min":               off("0"),
	"dynatemp_max":               off("0"),
	"dynatemp_low":               off("1").needs("dynamic_temperature"),
	"dynatemp_high":              off("1").needs("dynamic_temperature"),
	"smoothing_factor":           off("0"),
	"smoothing_curve":            off("1").needs("smoothing_factor"),
	"adaptive_target":            off("-1"),
	"adaptive_decay":             off("0.9").needs("adaptive_target"),
	"mirostat":                   off("0"),
	"mirostat_mode":              off("0"),
	"mirostat_tau":               off("5", "0").needs("mirostat"),
	"mirostat_eta":               off("0.1", "0").needs("mirostat"),
	"mirostat_ent":               off("5").needs("mirostat"),
	"mirostat_lr":                off("0.1").needs("mirostat"),
	"xtc_probability":            off("0"),
	"xtc_threshold":              off("0.1", "0").needs("xtc_probability"),
	"dry_multiplier":             off("0"),
	"dry_base":                   off("1.75").needs("dry_multiplier"),
	"dry_allowed_length":         off("2").needs("dry_multiplier"),
	"dry_penalty_last_n":         off("-1", "0").needs("dry_multiplier"),
	"dry_range":                  off("0").needs("dry_multiplier"),
	"dry_sequence_breakers":      off("[]", `["\n",":","\"","*"]`).needs("dry_multiplier"),
	"dry_sequence_breaker_ids":   off("[]").needs("dry_multiplier"),
	"repeat_penalty":             off("1").instead(usePenalty),
	"rep_pen":                    off("1").instead(usePenalty),
	"repeat_last_n":              off("-1").needs("repeat_penalty"),
	"rep_pen_range":              off("0", "-1").needs("rep_pen"),
	"rep_pen_slope":              off("0", "1").needs("rep_pen"),
	"repetition_penalty_range":   off("0", "-1"),
	"encoder_repetition_penalty": off("1"),
	"no_repeat_ngram_size":       off("0"),
	"repetition_detection":       off(),
	"penalize_nl":                off("false", "true").needs("repeat_penalty"),
	"penalty_alpha":              off("0"),
	"skew":                       off("0"),
	"temperature_last":           off("false"),
	"do_sample":                  off("true").instead("; temperature 0 is, for the most likely tokens"),
	"samplers":                   off("[]"),
	"sampler_order":              off("[]"),
	"sampler_priority":           off("[]"),
	"sampler_seq":                off(`""`),
	"min_keep":                   off("0"),
	"guidance_scale":             off("1"),
	"cfg_scale":                  off("1"),
	"negative_prompt":            off(`""`).needs("guidance_scale"),
	"watermark":                  off("false"),
	"watermarking":               off("false"),

	// Beam search and several candidates.
	"best_of":              off("1", "0").instead("; n is"),
	"use_beam_search":      off("false"),
	"num_beams":            off("1"),
	"beam_width":           off("1"),
	"length_penalty":       off("1").needs("use_beam_search"),
	"early_stopping":       off("false").needs("use_beam_search"),
	"num_return_sequences": off("1").instead("; n is"),

	// Forbidden and required tokens and texts.
	"bad_words":                                 off("[]").instead("; logit_bias is, for single tokens"),
	"bad_words_ids":                             off("[]").instead("; logit_bias is, for single tokens"),
	"banned_strings":                            off("[]", `""`),
	"banned_tokens":                             off("[]", `""`).instead("; logit_bias is"),
	"custom_token_bans":                         off("[]", `""`).instead("; logit_bias is"),
	"allowed_token_ids":                         off().instead("; logit_bias is"),
	"ban_eos_token":                             off("false").instead("; ignore_eos is"),
	"logits_processors":                         off("[]"),
	"logits_processor":                          off("[]"),
	"custom_logit_processor":                    off(),
	"custom_params":                             off("{}").needs("custom_logit_processor"),
	"stop_regex":                                off("[]", `""`).instead("; stop is"),
	"stop_sequences":                            off("[]").instead("; stop is"),
	"stop_sequence":                             off("[]").instead("; stop is"),
	"no_stop_trim":                              off("false").instead("; include_stop_str_in_output is"),
	"guided_regex":                              off().instead(useGuidedJSON),
	"guided_choice":                             off().instead(useGuidedJSON),
	"guided_grammar":                            off().instead(useGuidedJSON),
	"guided_json_object":                        off("false").instead("; response_format of type json_object is"),
	"guided_whitespace_pattern":                 off(),
	"guided_decoding_backend":                   noOp,
	"structural_tag":                            off(),
	"structured_outputs.regex":                  off().instead("; json and json_object are"),
	"structured_outputs.choice":                 off().instead("; json and json_object are"),
	"structured_outputs.grammar":                off().instead("; json and json_object are"),
	"structured_outputs.structural_tag":         off().instead("; json and json_object are"),
	"structured_outputs.whitespace_pattern":     off(),
	"structured_outputs.disable_any_whitespace": off("false"),
	"structured_outputs.disable_additional_properties": off("false"),
	"structured_outputs.disable_fallback":              noOp,
	"structured_outputs.backend":                       noOp,
	"response_format.schema":                           off().instead("; response_format.json_schema.schema is"),
	"response_format.json_schema.name":                 noOp,
	"response_format.json_schema.description":          noOp,
	"response_format.json_schema.strict":               noOp, // schemas are always enforced
	"grammar":                                          off(`""`).instead("; response_format is"),
	"grammar_string":                                   off(`""`).instead("; response_format is"),
	"grammar_lazy":                                     off("false"),
	"grammar_triggers":                                 off("[]"),
	"preserved_tokens":                                 off("[]"),
	"json_schema":                                      off().instead("; response_format is"),
	"json_object":                                      off("false").instead("; response_format is"),
	"regex":                                            off(`""`).instead("; response_format is"),
	"regex_pattern":                                    off(`""`).instead("; response_format is"),
	"ebnf":                                             off(`""`).instead("; response_format is"),
	"format":                                           off(`""`).instead("; response_format is"),

	// Lengths.
	"truncate_prompt_tokens": off(),
	"truncation_side":        off().needs("truncate_prompt_tokens"),
	"truncation_length":      off("0"),
	"truncate":               off("false", `"NONE"`),
	"max_new_tokens":         off().instead(useMaxTokens),
	"max_length":             off().instead(useMaxTokens),
	"max_output_tokens":      off().instead(useMaxTokens),
	"n_predict":              off("-1").instead(useMaxTokens),
	"num_predict":            off("-1").instead(useMaxTokens),
	"max_completion_tokens":  off().instead(useMaxTokens),
	"min_new_tokens":         off("0").instead("; min_tokens is"),
	"min_length":             off("0").instead("; min_tokens is"),
	"max_time":               off(),
	"max_tokens_second":      off("0"),
	"t_max_predict_ms":       off("0", "-1"),
	"n_indent":               off("0"),

	// Fields that add data to the answer besides its text.
	"return_token_ids":                      off("false"),
	"return_prompt_token_ids":               off("false"),
	"return_prompt_text":                    off("false"),
	"return_tokens_as_token_ids":            off("false"),
	"return_tokens":                         off("false"),
	"return_token_offsets":                  off("false"),
	"return_hidden_states":                  off("false"),
	"return_routed_experts":                 off("false"),
	"return_cached_tokens_details":          off("false"),
	"return_meta_info":                      off("false"),
	"return_progress":                       off("false"),
	"return_full_text":                      off("false").instead("; echo is, of /v1/completions"),
	"return_text_in_logprobs":               off("false"),
	"logprob_token_ids":                     off("[]"),
	"logprob_start_len":                     off("-1"),
	"top_logprobs_num":                      off("0").instead("; top_logprobs is"),
	"return_logprob":                        off("false").instead("; logprobs is"),
	"prompt_logprobs":                       off(),
	"n_probs":                               off("0").instead("; logprobs is"),
	"top_n_tokens":                          off("0").instead("; top_logprobs is"),
	"details":                               off("false"),
	"decoder_input_details":                 off("false"),
	"post_sampling_probs":                   off("false"),
	"response_fields":                       off("[]"),
	"timings_per_token":                     off("false"),
	"echo":                                  off("false").instead("; /v1/completions has it"),
	"suffix":                                off().instead(": the model continues texts, and fills no gaps"),
	"top_logprobs":                          off("0").instead("; logprobs is a number here"),
	"stream_options.continuous_usage_stats": off("false").instead("; include_usage is"),
	"stream_options.include_obfuscation":    off("false"),
	"stream_interval":                       off("1"),

	// Chats.
	"functions":              off("[]").instead("; tools and tool_choice are"),
	"function_call":          off().instead("; tools and tool_choice are"),
	"tools":                  off("[]"),
	"tool_choice":            off(`"none"`),
	"messages":               off().instead("; /v1/chat/completions has them"),
	"audio":                  off().instead(": the model writes text"),
	"modalities":             off(`["text"]`).instead(": the model writes text"),
	"images":                 off("[]").instead(": the model reads text"),
	"image_data":             off("[]").instead(": the model reads text"),
	"mm_processor_kwargs":    off("{}"),
	"media_io_kwargs":        off("{}"),
	"web_search_options":     off(),
	"verbosity":              off(`"medium"`),
	"reasoning_effort":       off().instead(useTemplateArgs),
	"reasoning":              off("{}").instead(useTemplateArgs),
	"reasoning_format":       off(`"none"`, `"auto"`),
	"include_reasoning":      off("true"),
	"separate_reasoning":     off("false"),
	"reasoning_budget":       off("-1"),
	"thinking_token_budget":  off("-1"),
	"thinking_budget":        off("-1"),
	"thinking":               off().instead(useTemplateArgs),
	"enable_thinking":        off().instead(useTemplateArgs),
	"think":                  off().instead(useTemplateArgs),
	"documents":              off("[]").instead(useTemplateArgs),
	"chat_template":          off().instead(": a server has one of its own"),
	"continue_final_message": off("false").instead("; /v1/completions continues a text"),
	"system":                 off(`""`).instead("; a message of the role system is"),
	"guideline":              off(`""`),
	"tool_prompt":            off(`""`).needs("tools"),
	"task":                   off(),

	// Prompts and adapters.
	"prompt_embeds":      off(),
	"input_ids":          off().instead("; /v1/completions takes token ids as prompt"),
	"input_embeds":       off(),
	"context":            off("[]"),
	"raw":                off("false"),
	"template":           off(`""`),
	"options":            off("{}").instead("; its fields belong to the request itself"),
	"parameters":         off("{}").instead("; its fields belong to the request itself"),
	"extra_body":         off("{}").instead("; its fields belong to the request itself"),
	"sampling_params":    off("{}").instead("; its fields belong to the request itself"),
	"lora":               off("[]").instead("; model names the adapter"),
	"lora_path":          off(`""`).instead("; model names the adapter"),
	"adapter_id":         off(`""`).instead("; model names the adapter"),
	"lora_request":       off().instead("; model names the adapter"),
	"session_params":     off("{}"),
	"kv_transfer_params": off("{}"),
	"ec_transfer_params": off("{}"),
	"vllm_xargs":         off("{}"),
	"priority":           off("0"),

	// Embeddings.
	"normalize":        off("true"),
	"embd_normalize":   off("2"),
	"input_type":       off(),
	"prompt_name":      off(),
	"instruction":      off(`""`),
	"embed_dtype":      off(`"float32"`),
	"output_dtype":     off(`"float"`),
	"endianness":       off(`"native"`, `"little"`),
	"output_dimension": off().instead("; dimensions is"),
	"embedding_type":   off(`"float"`).instead("; encoding_format is"),
	"late_chunking":    off("false"),

	// No effect on answers.
	"metadata":                      noOp,
	"store":                         noOp,
	"service_tier":                  noOp,
	"safety_identifier":             noOp,
	"prompt_cache_key":              noOp,
	"prompt_cache_retention":        noOp,
	"prediction":                    noOp, // speeds up known text
	"user":                          noOp,
	"request_id":                    noOp,
	"rid":                           noOp,
	"session_id":                    noOp,
	"custom_labels":                 noOp,
	"keep_alive":                    noOp,
	"cache_prompt":                  noOp,
	"id_slot":                       noOp,
	"n_keep":                        noOp, // contexts are never shifted
	"n_discard":                     noOp,
	"n_cache_reuse":                 noOp,
	"stream_reasoning":              noOp,
	"sse_ping_interval":             noOp,
	"spaces_between_special_tokens": noOp, // of slow tokenizers only
	"routed_dp_rank":                noOp,
	"data_parallel_rank":            noOp,
}

// isOff reports whether the value of a field leaves its feature off. values holds the object that
// contains the field.
func (f unsupportedField) isOff(raw json.RawMessage, values map[string]json.RawMessage) bool {
	var v any
	if f.noOp || json.Unmarshal(raw, &v) != nil || v == nil {
		return true
	}
	for _, x := range f.off {
		if reflect.DeepEqual(v, x) {
			return true
		}
	}
	if feature, ok := values[f.with]; ok {
		return unsupported[f.with].isOff(feature, values)
	}
	return false
}

// checkUnread refuses unread fields that would affect the answer, and logs unknown names. Every
// endpoint accepts the field model.
func (c *call) checkUnread(objects []unread) *failure {
	for _, o := range objects {
		for _, name := range o.names {
			full := o.within + name
			field, known := unsupported[full]
			switch {
			case full == "model":
			case !known:
				c.server.unknown.log(c, full)
			case !field.isOff(o.values[name], o.values):
				return faulty(full, "not supported%s", field.hint)
			}
		}
	}
	return nil
}

// unknownFields remembers the names of request fields that have been logged.
type unknownFields struct {
	mu    sync.Mutex
	names map[string]bool
}

// maxUnknown is the maximum number of names to log, since clients choose them.
const maxUnknown = 256

// log logs a name that has not been logged before.
func (u *unknownFields) log(c *call, name string) {
	if len(name) > 100 {
		name = brief([]byte(name))
	}
	u.mu.Lock()
	if u.names[name] || len(u.names) == maxUnknown {
		u.mu.Unlock()
		return
	}
	if u.names == nil {
		u.names = map[string]bool{}
	}
	u.names[name] = true
	u.mu.Unlock()
	c.server.options.Logger.Warn("unknown request field is ignored", slog.String("field", name), slog.String("path", c.request.URL.Path), slog.String("id", c.id))
}
