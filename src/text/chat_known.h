/* Made by scripts/make_chat_fixtures.py; do not edit. SHA-256 of the texts of real chat
 * templates, and the names of the templates in chat.c that equal them. The script proves each equality. */
static const struct { const char *sha256, *name; } chat_known[] = {
    { "fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", "chatml" },    /* openhermes-2.5 */
    { "153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3", "chatml" },    /* openhermes-2.5 */
    { "58c1a1f04baa7adaeaba1f90267c3d57d9396f0c1f0129bdde9e76d3c6784af7", "chatml" },    /* dolphin-2.5 */
    { "d7b5b8c7b58f7a6bf868aa46a5f73ee976d7292f40fcb9c3e7a1defd8d235cfb", "chatml" },    /* dolphin-2.5 */
    { "32bb7772d2f28c13716687fc6f8fe9c0bf5eacd7539a8165271516b2b70cd9d5", "chatml" },    /* own-chatml */
    { "3e3e4ccd01b95ae100e861475e34dd42d044d15858f876bb73fe2934fe1603db", "chatml" },    /* unsloth-chatml */
    { "27841847cf8aa3fa0c9c80b6ce881ce565015a4f01b2d8ea142e1442a70d3c94", "chatml" },    /* unsloth-chatml */
    { "64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326", "chatml" },    /* trl-qwen3_instruct_2507 */
    { "48e17aa3caf5bf20075b6e7366864ee943e00b6f0752aadfe8b670c2ab0291a5", "chatml" },    /* trl-qwen3_instruct_2507_training */
    { "3ce2fe9753f9a77a601f55dfcab7cd46fbc91324aae0f78ca38d194a4eaef8d5", "chatml-bos" },    /* internlm2-chat-7b */
    { "5031bbcbeaaa53528ac13612947642d82e9770b85caffed2835b4f129a91606a", "chatml-bos" },    /* internlm2-chat-7b */
    { "e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf", "llama2" },    /* llama-2-chat */
    { "9780fae5bfea3cfd7be37d328c6edfd296a8869be8131495bbe7eb37e780c88c", "llama2" },    /* llama-2-chat */
    { "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", "llama3" },    /* llama-3-instruct */
    { "4f46ecd43418f216df8c26936c60e5d04bcc81db47db5d86fbe889f64212dd4c", "llama3" },    /* llama-3-instruct */
    { "bc213ef03ac49e40c58b11933b109235e63d25f13e7cd4df966c577966d2345e", "llama3" },    /* trl-llama3_training */
    { "99195f2f7dc1344662663119562b46fc067034c0ea660cf1cab333617c7290c2", "llama3" },    /* unsloth-llama3 */
    { "e460249284c8bba3457f62eb73d5459096d5ff58d5ad75630e370bdf2cab0347", "llama3" },    /* unsloth-llama3 */
    { "b48c47f6443892716176eb200bf4ef108f64e06ca26ed0fa8ebc0a4b3992fcb2", "llama3-first" },    /* llama-3-instruct-first */
    { "b75e17085cfc511ead6d4fab84b86ab3c168ec7a332568a91d0889cdcba94394", "llama3-first" },    /* llama-3-instruct-first */
    { "93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7", "llama3.1" },    /* llama-3.1-instruct */
    { "d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f", "llama3.1" },    /* llama-3.2-instruct */
    { "7e995b379ec01747807246483647cd99030abf331653f1119e16d7ac041a3495", "mistral-v0.1" },    /* mistral-7b-instruct-v0.1 */
    { "26a59556925c987317ce5291811ba3b7f32ec4c647c400c6cc7e3a9993007ba7", "mistral-v0.2" },    /* mixtral-8x7b-instruct-v0.1 */
    { "bbc58aad99454df60138be9530c9601a0adfe3d8932cda975e1f10b2410ddc51", "mistral-v1" },    /* mistral-7b-instruct-v0.2 */
    { "cafb64e0e9e5fd2503054b3479593fae39cbdfd52338ce8af9bb4664a8eb05bd", "mistral-v3" },    /* mistral-large-instruct-2407 */
    { "e7deee034838db2bfc7487788a3013d8a307ab69f72f3c54a85f06fd76007d4e", "mistral-v3-tekken" },    /* mistral-nemo-instruct-2407 */
    { "3c4ad5fa60dd8c7ccdf82fa4225864c903e107728fcaf859fa6052cb80c92ee9", "mistral-v7" },    /* mistral-large-instruct-2411 */
    { "af9c0233881b083b52ff773580215222b5440ac3d0beeeca99b76329b048f8db", "qwen1.5" },    /* qwen1.5-chat */
    { "7c0cc400db493cfc546224cbd626ef46495c4b19103042eb5518f06bf7f1e26d", "qwen1.5" },    /* qwen1.5-chat */
    { "793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb", "qwen2" },    /* qwen2-instruct */
    { "f0206845c9ebc3abb4735d44f286eb81ce99238ad2accc710c6fc60e6cb8ccc8", "qwen2" },    /* qwen2-instruct */
    { "55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a", "qwen2.5" },    /* qwen2.5-instruct */
    { "f3714f7117c9d447db80ceb3fcb67a64ba08d149dd4434fe53add9c7f1dd344b", "qwen2.5" },    /* trl-qwen2_5_training */
    { "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8", "qwen3" },    /* trl-qwen3 */
    { "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5", "qwen3" },    /* qwen3-0.6b */
    { "483b4faebed5bad1da18c75a23ac02a60a94fb2e2ec572fc3de26f1d71509452", "qwen3" },    /* unsloth-qwen3 */
    { "aaf017523eaf83938ad0c0ccfdcf8c3dda8f49b364c5c96d1e4f116b4b462727", "vicuna" },    /* own-vicuna */
    { "7e790c457ea734e6ec959ad1d003e5f421bed352a5828d9fc4bbf61e7c1a980c", "vicuna-lines" },    /* vicuna-lines */
    { "e22b66ebe0ab8a983c5bdbd3dce03f8a7803ec4604df6a5232bcc6af1e17245d", "vicuna-lines" },    /* vicuna-lines */
    { "66291cf0045c2425a3a667cf3cbb7af2b11f09e025c02f97245323ab79119362", "zephyr" },    /* zephyr-7b-beta */
    { "5e2833b50f34f4581d09d801325bf4d7d8285bcad36be595a30a9904b7759f5d", "zephyr" },    /* unsloth-zephyr */
    { "d7b6c50818cef0dd51832d783d0b5cb469b5f678203f5b88c13042f635b83fb4", "zephyr" },    /* unsloth-zephyr */
};
