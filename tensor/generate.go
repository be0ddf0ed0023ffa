package tensor

//go:generate go run -C ../tools ./asm/convert -out ../tensor/convert_amd64.s -stubs ../tensor/stubs_amd64.go -pkg tensor
//go:generate go run -C ../tools ./asm/neon/convert -out ../tensor/convert_arm64.s -stubs ../tensor/stubs_arm64.go -pkg tensor
