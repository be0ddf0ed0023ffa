package single

// readers infers the configuration of each class from tensor shapes. Tensors have diffusers
// names. Settings that shapes do not determine are taken from the published models.
var readers = map[string]func(*shapes){
	"FluxTransformer2DModel":        readFlux,
	"Flux2Transformer2DModel":       readFlux2,
	"QwenImageTransformer2DModel":   readQwenImage,
	"QwenImage21Transformer2DModel": readQwenImage21,
	"ZImageTransformer2DModel":      readZImage,
	"Kandinsky5Transformer3DModel":  readKandinsky5,
}

// Axes of rotary embeddings by head size.
var (
	imageAxes     = map[int][]int{128: {16, 56, 56}} // of FLUX.1 and Qwen-Image
	flux2Axes     = map[int][]int{128: {32, 32, 32, 32}}
	zImageAxes    = map[int][]int{128: {32, 48, 48}}
	kandinskyAxes = map[int][]int{64: {16, 24, 24}}
)

func readFlux(s *shapes) {
	head := s.dim("transformer_blocks.0.attn.norm_q.weight", 0)
	s.keys["num_layers"] = s.count("transformer_blocks.%d.attn.norm_q.weight")
	s.keys["num_single_layers"] = s.count("single_transformer_blocks.%d.attn.norm_q.weight")
	s.keys["attention_head_dim"] = head
	s.keys["num_attention_heads"] = s.ratio("attention_head_dim", s.dim("x_embedder.weight", 0), head)
	s.keys["in_channels"] = s.dim("x_embedder.weight", 1)
	s.keys["out_channels"] = s.dim("proj_out.weight", 0)
	s.keys["joint_attention_dim"] = s.dim("context_embedder.weight", 1)
	s.keys["pooled_projection_dim"] = s.dim("time_text_embed.text_embedder.linear_1.weight", 1)
	s.keys["guidance_embeds"] = s.f.has("time_text_embed.guidance_embedder.linear_1.weight")
	s.axes("axes_dims_rope", head, imageAxes)
}

func readFlux2(s *shapes) {
	head, width := s.dim("single_transformer_blocks.0.attn.norm_q.weight", 0), s.dim("x_embedder.weight", 0)
	s.keys["num_layers"] = s.count("transformer_blocks.%d.attn.norm_q.weight")
	s.keys["num_single_layers"] = s.count("single_transformer_blocks.%d.attn.norm_q.weight")
	s.keys["attention_head_dim"] = head
	s.keys["num_attention_heads"] = s.ratio("attention_head_dim", width, head)
	s.keys["in_channels"] = s.dim("x_embedder.weight", 1)
	s.keys["out_channels"] = s.dim("proj_out.weight", 0)
	s.keys["joint_attention_dim"] = s.dim("context_embedder.weight", 1)
	s.keys["timestep_guidance_channels"] = s.dim("time_guidance_embed.timestep_embedder.linear_1.weight", 1)
	s.keys["mlp_ratio"] = float64(s.dim("single_transformer_blocks.0.attn.to_out.weight", 1)-width) / float64(width)
	s.keys["guidance_embeds"] = s.f.has("time_guidance_embed.guidance_embedder.linear_1.weight")
	s.axes("axes_dims_rope", head, flux2Axes)
}

func readQwenImage(s *shapes) {
	head := s.dim("transformer_blocks.0.attn.norm_q.weight", 0)
	layered := s.f.has("time_text_embed.addition_t_embedding.weight")
	s.keys["num_layers"] = s.count("transformer_blocks.%d.attn.norm_q.weight")
	s.keys["attention_head_dim"] = head
	s.keys["num_attention_heads"] = s.ratio("attention_head_dim", s.dim("img_in.weight", 0), head)
	s.keys["in_channels"] = s.dim("img_in.weight", 1)
	s.keys["out_channels"] = s.ratio("patch_size", s.dim("proj_out.weight", 0), 4)
	s.keys["joint_attention_dim"] = s.dim("txt_in.weight", 1)
	s.keys["zero_cond_t"] = s.f.marked(markClear)
	s.keys["use_additional_t_cond"], s.keys["use_layer3d_rope"] = layered, layered
	s.axes("axes_dims_rope", head, imageAxes)
}

func readQwenImage21(s *shapes) {
	head, width := s.dim("transformer_blocks.0.attn.norm_q.weight", 0), s.dim("img_in.weight", 0)
	s.keys["num_layers"] = s.count("transformer_blocks.%d.attn.norm_q.weight")
	s.keys["attention_head_dim"] = head
	s.keys["num_attention_heads"] = s.ratio("attention_head_dim", width, head)
	s.keys["in_channels"] = s.dim("img_in.weight", 1)
	s.keys["out_channels"] = s.dim("proj_out.weight", 0)
	s.keys["context_in_dim"] = s.dim("txt_in.text_norm.weight", 0)
	s.keys["mlp_ratio"] = s.ratio("mlp_ratio", s.dim("transformer_blocks.0.img_mlp.out.weight", 1), width)
	s.axes("axes_dims_rope", head, imageAxes)
}

func readZImage(s *shapes) {
	head, width := s.dim("layers.0.attention.norm_q.weight", 0), s.dim("all_x_embedder.2-1.weight", 0)
	heads := s.ratio("n_heads", width, head)
	s.keys["dim"], s.keys["n_heads"], s.keys["n_kv_heads"] = width, heads, heads
	s.keys["in_channels"] = s.ratio("all_patch_size", s.dim("all_x_embedder.2-1.weight", 1), 4)
	s.keys["n_layers"] = s.count("layers.%d.attention.to_q.weight")
	s.keys["n_refiner_layers"] = s.count("noise_refiner.%d.attention.to_q.weight")
	s.keys["cap_feat_dim"] = s.dim("cap_embedder.0.weight", 0)
	s.axes("axes_dims", head, zImageAxes)
}

func readKandinsky5(s *shapes) {
	const places = 4 // per token
	width := s.dim("visual_embeddings.in_layer.weight", 0)
	in := s.ratio("patch_size", s.dim("visual_embeddings.in_layer.weight", 1), places)
	out := s.ratio("patch_size", s.dim("out_layer.out_layer.weight", 0), places)
	s.keys["model_dim"], s.keys["time_dim"] = width, s.dim("time_embeddings.in_layer.weight", 0)
	s.keys["ff_dim"] = s.dim("visual_transformer_blocks.0.feed_forward.in_layer.weight", 0)
	s.keys["in_text_dim"] = s.dim("text_embeddings.in_layer.weight", 1)
	s.keys["in_text_dim2"] = s.dim("pooled_text_embeddings.in_layer.weight", 1)
	s.keys["in_visual_dim"], s.keys["out_visual_dim"] = out, out
	s.keys["visual_cond"] = in == 2*out+1
	s.keys["num_text_blocks"] = s.count("text_transformer_blocks.%d.self_attention.to_query.weight")
	s.keys["num_visual_blocks"] = s.count("visual_transformer_blocks.%d.self_attention.to_query.weight")
	s.axes("axes_dims", s.dim("visual_transformer_blocks.0.self_attention.query_norm.weight", 0), kandinskyAxes)
}
