// hash.cu as PTX text, made by the command in that file; the driver compiles it for whatever GPU it
// finds.
#pragma once

namespace billow::gpumem {
inline constexpr char hash_ptx[] = R"PTX(.version 7.0
.target sm_75
.address_size 64
	// .globl	billow_hash_pieces
.visible .entry billow_hash_pieces(
	.param .u64 billow_hash_pieces_param_0,
	.param .u64 billow_hash_pieces_param_1
)
.maxntid 256, 1, 1
{
	.reg .pred 	%p<15>;
	.reg .b32 	%r<37>;
	.reg .b64 	%rd<431>;
	// demoted variable
	.shared .align 8 .b8 _ZZ18billow_hash_piecesE4lows[2048];
	// demoted variable
	.shared .align 8 .b8 _ZZ18billow_hash_piecesE5highs[2048];
	// demoted variable
	.shared .align 8 .b8 _ZZ18billow_hash_piecesE4anys[2048];
	ld.param.u64 	%rd86, [billow_hash_pieces_param_0];
	cvta.to.global.u64 	%rd87, %rd86;
	mov.u32 	%r9, %ctaid.x;
	mul.wide.u32 	%rd88, %r9, 16;
	add.s64 	%rd89, %rd87, %rd88;
	ld.global.u64 	%rd90, [%rd89];
	mov.u64 	%rd425, 0;
	cvta.to.global.u64 	%rd1, %rd90;
	ld.global.u64 	%rd430, [%rd89+8];
	shr.u64 	%rd91, %rd430, 4;
	mov.u32 	%r10, %tid.x;
	add.s32 	%r11, %r10, 1;
	cvt.u64.u32 	%rd92, %r11;
	mul.lo.s64 	%rd427, %rd92, -3335678366873096957;
	mul.lo.s64 	%rd426, %rd92, -7046029254386353131;
	cvt.u64.u32 	%rd395, %r10;
	add.s64 	%rd93, %rd395, 768;
	setp.ge.u64 	%p1, %rd93, %rd91;
	@%p1 bra 	$L__BB0_6;
	add.s64 	%rd97, %rd91, -769;
	cvt.u64.u32 	%rd395, %r10;
	sub.s64 	%rd98, %rd97, %rd395;
	shr.u64 	%rd99, %rd98, 10;
	setp.eq.s64 	%p2, %rd99, 0;
	mov.u64 	%rd425, 0;
	mul.lo.s64 	%rd427, %rd92, -3335678366873096957;
	mul.lo.s64 	%rd426, %rd92, -7046029254386353131;
	@%p2 bra 	$L__BB0_4;
	cvt.u64.u32 	%rd395, %r10;
	sub.s64 	%rd104, %rd97, %rd395;
	shr.u64 	%rd105, %rd104, 10;
	add.s64 	%rd106, %rd105, 1;
	and.b64  	%rd107, %rd106, 1;
	sub.s64 	%rd394, %rd106, %rd107;
	mul.lo.s64 	%rd427, %rd92, -3335678366873096957;
	mul.lo.s64 	%rd426, %rd92, -7046029254386353131;
	mov.u64 	%rd425, 0;
$L__BB0_3:
	shl.b64 	%rd109, %rd395, 4;
	add.s64 	%rd110, %rd1, %rd109;
	ld.global.v2.u64 	{%rd111, %rd112}, [%rd110];
	ld.global.v2.u64 	{%rd115, %rd116}, [%rd110+4096];
	ld.global.v2.u64 	{%rd119, %rd120}, [%rd110+8192];
	ld.global.v2.u64 	{%rd123, %rd124}, [%rd110+12288];
	xor.b64  	%rd127, %rd111, %rd427;
	mul.lo.s64 	%rd128, %rd127, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd128, 29;
	shr.b64 	%rhs, %rd128, 35;
	add.u64 	%rd129, %lhs, %rhs;
	}
	add.s64 	%rd130, %rd129, %rd111;
	xor.b64  	%rd131, %rd130, %rd112;
	xor.b64  	%rd132, %rd131, %rd426;
	mul.lo.s64 	%rd133, %rd132, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd133, 29;
	shr.b64 	%rhs, %rd133, 35;
	add.u64 	%rd134, %lhs, %rhs;
	}
	add.s64 	%rd135, %rd134, %rd131;
	or.b64  	%rd136, %rd111, %rd425;
	or.b64  	%rd137, %rd136, %rd112;
	xor.b64  	%rd138, %rd115, %rd130;
	mul.lo.s64 	%rd139, %rd138, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd139, 29;
	shr.b64 	%rhs, %rd139, 35;
	add.u64 	%rd140, %lhs, %rhs;
	}
	add.s64 	%rd141, %rd140, %rd115;
	xor.b64  	%rd142, %rd141, %rd116;
	xor.b64  	%rd143, %rd142, %rd135;
	mul.lo.s64 	%rd144, %rd143, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd144, 29;
	shr.b64 	%rhs, %rd144, 35;
	add.u64 	%rd145, %lhs, %rhs;
	}
	add.s64 	%rd146, %rd145, %rd142;
	or.b64  	%rd147, %rd115, %rd137;
	or.b64  	%rd148, %rd147, %rd116;
	xor.b64  	%rd149, %rd119, %rd141;
	mul.lo.s64 	%rd150, %rd149, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd150, 29;
	shr.b64 	%rhs, %rd150, 35;
	add.u64 	%rd151, %lhs, %rhs;
	}
	add.s64 	%rd152, %rd151, %rd119;
	xor.b64  	%rd153, %rd152, %rd120;
	xor.b64  	%rd154, %rd153, %rd146;
	mul.lo.s64 	%rd155, %rd154, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd155, 29;
	shr.b64 	%rhs, %rd155, 35;
	add.u64 	%rd156, %lhs, %rhs;
	}
	add.s64 	%rd157, %rd156, %rd153;
	or.b64  	%rd158, %rd119, %rd148;
	or.b64  	%rd159, %rd158, %rd120;
	xor.b64  	%rd160, %rd123, %rd152;
	mul.lo.s64 	%rd161, %rd160, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd161, 29;
	shr.b64 	%rhs, %rd161, 35;
	add.u64 	%rd162, %lhs, %rhs;
	}
	add.s64 	%rd163, %rd162, %rd123;
	xor.b64  	%rd164, %rd163, %rd124;
	xor.b64  	%rd165, %rd164, %rd157;
	mul.lo.s64 	%rd166, %rd165, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd166, 29;
	shr.b64 	%rhs, %rd166, 35;
	add.u64 	%rd167, %lhs, %rhs;
	}
	add.s64 	%rd168, %rd167, %rd164;
	or.b64  	%rd169, %rd123, %rd159;
	or.b64  	%rd170, %rd169, %rd124;
	ld.global.v2.u64 	{%rd171, %rd172}, [%rd110+16384];
	ld.global.v2.u64 	{%rd175, %rd176}, [%rd110+20480];
	ld.global.v2.u64 	{%rd179, %rd180}, [%rd110+24576];
	ld.global.v2.u64 	{%rd183, %rd184}, [%rd110+28672];
	xor.b64  	%rd187, %rd171, %rd163;
	mul.lo.s64 	%rd188, %rd187, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd188, 29;
	shr.b64 	%rhs, %rd188, 35;
	add.u64 	%rd189, %lhs, %rhs;
	}
	add.s64 	%rd190, %rd189, %rd171;
	xor.b64  	%rd191, %rd190, %rd172;
	xor.b64  	%rd192, %rd191, %rd168;
	mul.lo.s64 	%rd193, %rd192, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd193, 29;
	shr.b64 	%rhs, %rd193, 35;
	add.u64 	%rd194, %lhs, %rhs;
	}
	add.s64 	%rd195, %rd194, %rd191;
	or.b64  	%rd196, %rd171, %rd170;
	or.b64  	%rd197, %rd196, %rd172;
	xor.b64  	%rd198, %rd175, %rd190;
	mul.lo.s64 	%rd199, %rd198, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd199, 29;
	shr.b64 	%rhs, %rd199, 35;
	add.u64 	%rd200, %lhs, %rhs;
	}
	add.s64 	%rd201, %rd200, %rd175;
	xor.b64  	%rd202, %rd201, %rd176;
	xor.b64  	%rd203, %rd202, %rd195;
	mul.lo.s64 	%rd204, %rd203, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd204, 29;
	shr.b64 	%rhs, %rd204, 35;
	add.u64 	%rd205, %lhs, %rhs;
	}
	add.s64 	%rd206, %rd205, %rd202;
	or.b64  	%rd207, %rd175, %rd197;
	or.b64  	%rd208, %rd207, %rd176;
	xor.b64  	%rd209, %rd179, %rd201;
	mul.lo.s64 	%rd210, %rd209, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd210, 29;
	shr.b64 	%rhs, %rd210, 35;
	add.u64 	%rd211, %lhs, %rhs;
	}
	add.s64 	%rd212, %rd211, %rd179;
	xor.b64  	%rd213, %rd212, %rd180;
	xor.b64  	%rd214, %rd213, %rd206;
	mul.lo.s64 	%rd215, %rd214, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd215, 29;
	shr.b64 	%rhs, %rd215, 35;
	add.u64 	%rd216, %lhs, %rhs;
	}
	add.s64 	%rd217, %rd216, %rd213;
	or.b64  	%rd218, %rd179, %rd208;
	or.b64  	%rd219, %rd218, %rd180;
	xor.b64  	%rd220, %rd183, %rd212;
	mul.lo.s64 	%rd221, %rd220, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd221, 29;
	shr.b64 	%rhs, %rd221, 35;
	add.u64 	%rd222, %lhs, %rhs;
	}
	add.s64 	%rd427, %rd222, %rd183;
	xor.b64  	%rd223, %rd427, %rd184;
	xor.b64  	%rd224, %rd223, %rd217;
	mul.lo.s64 	%rd225, %rd224, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd225, 29;
	shr.b64 	%rhs, %rd225, 35;
	add.u64 	%rd226, %lhs, %rhs;
	}
	add.s64 	%rd426, %rd226, %rd223;
	or.b64  	%rd227, %rd183, %rd219;
	or.b64  	%rd425, %rd227, %rd184;
	add.s64 	%rd395, %rd395, 2048;
	add.s64 	%rd394, %rd394, -2;
	setp.ne.s64 	%p3, %rd394, 0;
	@%p3 bra 	$L__BB0_3;
$L__BB0_4:
	mov.u32 	%r32, %tid.x;
	cvt.u64.u32 	%rd389, %r32;
	add.s64 	%rd388, %rd91, -769;
	sub.s64 	%rd387, %rd388, %rd389;
	shr.u64 	%rd386, %rd387, 10;
	add.s64 	%rd233, %rd386, 1;
	and.b64  	%rd234, %rd233, 1;
	setp.eq.b64 	%p4, %rd234, 1;
	mov.pred 	%p5, 0;
	xor.pred  	%p6, %p4, %p5;
	not.pred 	%p7, %p6;
	@%p7 bra 	$L__BB0_6;
	shl.b64 	%rd235, %rd395, 4;
	add.s64 	%rd236, %rd1, %rd235;
	ld.global.v2.u64 	{%rd237, %rd238}, [%rd236];
	ld.global.v2.u64 	{%rd241, %rd242}, [%rd236+4096];
	ld.global.v2.u64 	{%rd245, %rd246}, [%rd236+8192];
	ld.global.v2.u64 	{%rd249, %rd250}, [%rd236+12288];
	xor.b64  	%rd253, %rd237, %rd427;
	mul.lo.s64 	%rd254, %rd253, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd254, 29;
	shr.b64 	%rhs, %rd254, 35;
	add.u64 	%rd255, %lhs, %rhs;
	}
	add.s64 	%rd256, %rd255, %rd237;
	xor.b64  	%rd257, %rd256, %rd238;
	xor.b64  	%rd258, %rd257, %rd426;
	mul.lo.s64 	%rd259, %rd258, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd259, 29;
	shr.b64 	%rhs, %rd259, 35;
	add.u64 	%rd260, %lhs, %rhs;
	}
	add.s64 	%rd261, %rd260, %rd257;
	or.b64  	%rd262, %rd237, %rd425;
	or.b64  	%rd263, %rd262, %rd238;
	xor.b64  	%rd264, %rd241, %rd256;
	mul.lo.s64 	%rd265, %rd264, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd265, 29;
	shr.b64 	%rhs, %rd265, 35;
	add.u64 	%rd266, %lhs, %rhs;
	}
	add.s64 	%rd267, %rd266, %rd241;
	xor.b64  	%rd268, %rd267, %rd242;
	xor.b64  	%rd269, %rd268, %rd261;
	mul.lo.s64 	%rd270, %rd269, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd270, 29;
	shr.b64 	%rhs, %rd270, 35;
	add.u64 	%rd271, %lhs, %rhs;
	}
	add.s64 	%rd272, %rd271, %rd268;
	or.b64  	%rd273, %rd241, %rd263;
	or.b64  	%rd274, %rd273, %rd242;
	xor.b64  	%rd275, %rd245, %rd267;
	mul.lo.s64 	%rd276, %rd275, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd276, 29;
	shr.b64 	%rhs, %rd276, 35;
	add.u64 	%rd277, %lhs, %rhs;
	}
	add.s64 	%rd278, %rd277, %rd245;
	xor.b64  	%rd279, %rd278, %rd246;
	xor.b64  	%rd280, %rd279, %rd272;
	mul.lo.s64 	%rd281, %rd280, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd281, 29;
	shr.b64 	%rhs, %rd281, 35;
	add.u64 	%rd282, %lhs, %rhs;
	}
	add.s64 	%rd283, %rd282, %rd279;
	or.b64  	%rd284, %rd245, %rd274;
	or.b64  	%rd285, %rd284, %rd246;
	xor.b64  	%rd286, %rd249, %rd278;
	mul.lo.s64 	%rd287, %rd286, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd287, 29;
	shr.b64 	%rhs, %rd287, 35;
	add.u64 	%rd288, %lhs, %rhs;
	}
	add.s64 	%rd427, %rd288, %rd249;
	xor.b64  	%rd289, %rd427, %rd250;
	xor.b64  	%rd290, %rd289, %rd283;
	mul.lo.s64 	%rd291, %rd290, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd291, 29;
	shr.b64 	%rhs, %rd291, 35;
	add.u64 	%rd292, %lhs, %rhs;
	}
	add.s64 	%rd426, %rd292, %rd289;
	or.b64  	%rd293, %rd249, %rd285;
	or.b64  	%rd425, %rd293, %rd250;
	add.s64 	%rd395, %rd395, 1024;
$L__BB0_6:
	setp.ge.u64 	%p8, %rd395, %rd91;
	@%p8 bra 	$L__BB0_13;
	not.b64 	%rd295, %rd395;
	add.s64 	%rd40, %rd91, %rd295;
	shr.u64 	%rd297, %rd40, 8;
	add.s64 	%rd298, %rd297, 1;
	and.b64  	%rd41, %rd298, 3;
	setp.eq.s64 	%p9, %rd41, 0;
	@%p9 bra 	$L__BB0_10;
	shl.b64 	%rd299, %rd395, 4;
	add.s64 	%rd408, %rd1, %rd299;
	neg.s64 	%rd407, %rd41;
$L__BB0_9:
	.pragma "nounroll";
	ld.global.v2.u64 	{%rd300, %rd301}, [%rd408];
	xor.b64  	%rd304, %rd300, %rd427;
	mul.lo.s64 	%rd305, %rd304, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd305, 29;
	shr.b64 	%rhs, %rd305, 35;
	add.u64 	%rd306, %lhs, %rhs;
	}
	add.s64 	%rd427, %rd306, %rd300;
	xor.b64  	%rd307, %rd427, %rd301;
	xor.b64  	%rd308, %rd307, %rd426;
	mul.lo.s64 	%rd309, %rd308, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd309, 29;
	shr.b64 	%rhs, %rd309, 35;
	add.u64 	%rd310, %lhs, %rhs;
	}
	add.s64 	%rd426, %rd310, %rd307;
	or.b64  	%rd311, %rd301, %rd425;
	or.b64  	%rd425, %rd311, %rd300;
	add.s64 	%rd395, %rd395, 256;
	add.s64 	%rd408, %rd408, 4096;
	add.s64 	%rd407, %rd407, 1;
	setp.ne.s64 	%p10, %rd407, 0;
	@%p10 bra 	$L__BB0_9;
$L__BB0_10:
	setp.lt.u64 	%p11, %rd40, 768;
	@%p11 bra 	$L__BB0_13;
	shl.b64 	%rd312, %rd395, 4;
	add.s64 	%rd313, %rd1, %rd312;
	add.s64 	%rd420, %rd313, 8192;
$L__BB0_12:
	ld.global.v2.u64 	{%rd314, %rd315}, [%rd420+-8192];
	xor.b64  	%rd318, %rd314, %rd427;
	mul.lo.s64 	%rd319, %rd318, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd319, 29;
	shr.b64 	%rhs, %rd319, 35;
	add.u64 	%rd320, %lhs, %rhs;
	}
	add.s64 	%rd321, %rd320, %rd314;
	xor.b64  	%rd322, %rd321, %rd315;
	xor.b64  	%rd323, %rd322, %rd426;
	mul.lo.s64 	%rd324, %rd323, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd324, 29;
	shr.b64 	%rhs, %rd324, 35;
	add.u64 	%rd325, %lhs, %rhs;
	}
	add.s64 	%rd326, %rd325, %rd322;
	or.b64  	%rd327, %rd315, %rd425;
	or.b64  	%rd328, %rd327, %rd314;
	ld.global.v2.u64 	{%rd329, %rd330}, [%rd420+-4096];
	xor.b64  	%rd333, %rd329, %rd321;
	mul.lo.s64 	%rd334, %rd333, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd334, 29;
	shr.b64 	%rhs, %rd334, 35;
	add.u64 	%rd335, %lhs, %rhs;
	}
	add.s64 	%rd336, %rd335, %rd329;
	xor.b64  	%rd337, %rd336, %rd330;
	xor.b64  	%rd338, %rd337, %rd326;
	mul.lo.s64 	%rd339, %rd338, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd339, 29;
	shr.b64 	%rhs, %rd339, 35;
	add.u64 	%rd340, %lhs, %rhs;
	}
	add.s64 	%rd341, %rd340, %rd337;
	or.b64  	%rd342, %rd330, %rd328;
	or.b64  	%rd343, %rd342, %rd329;
	ld.global.v2.u64 	{%rd344, %rd345}, [%rd420];
	xor.b64  	%rd348, %rd344, %rd336;
	mul.lo.s64 	%rd349, %rd348, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd349, 29;
	shr.b64 	%rhs, %rd349, 35;
	add.u64 	%rd350, %lhs, %rhs;
	}
	add.s64 	%rd351, %rd350, %rd344;
	xor.b64  	%rd352, %rd351, %rd345;
	xor.b64  	%rd353, %rd352, %rd341;
	mul.lo.s64 	%rd354, %rd353, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd354, 29;
	shr.b64 	%rhs, %rd354, 35;
	add.u64 	%rd355, %lhs, %rhs;
	}
	add.s64 	%rd356, %rd355, %rd352;
	or.b64  	%rd357, %rd345, %rd343;
	or.b64  	%rd358, %rd357, %rd344;
	ld.global.v2.u64 	{%rd359, %rd360}, [%rd420+4096];
	xor.b64  	%rd363, %rd359, %rd351;
	mul.lo.s64 	%rd364, %rd363, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd364, 29;
	shr.b64 	%rhs, %rd364, 35;
	add.u64 	%rd365, %lhs, %rhs;
	}
	add.s64 	%rd427, %rd365, %rd359;
	xor.b64  	%rd366, %rd427, %rd360;
	xor.b64  	%rd367, %rd366, %rd356;
	mul.lo.s64 	%rd368, %rd367, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd368, 29;
	shr.b64 	%rhs, %rd368, 35;
	add.u64 	%rd369, %lhs, %rhs;
	}
	add.s64 	%rd426, %rd369, %rd366;
	or.b64  	%rd370, %rd360, %rd358;
	or.b64  	%rd425, %rd370, %rd359;
	add.s64 	%rd420, %rd420, 16384;
	add.s64 	%rd395, %rd395, 1024;
	setp.lt.u64 	%p12, %rd395, %rd91;
	@%p12 bra 	$L__BB0_12;
$L__BB0_13:
	mov.u32 	%r30, %tid.x;
	shl.b32 	%r18, %r30, 3;
	mov.u32 	%r35, _ZZ18billow_hash_piecesE4lows;
	add.s32 	%r20, %r35, %r18;
	st.shared.u64 	[%r20], %rd427;
	mov.u32 	%r34, _ZZ18billow_hash_piecesE5highs;
	add.s32 	%r22, %r34, %r18;
	st.shared.u64 	[%r22], %rd426;
	mov.u32 	%r33, _ZZ18billow_hash_piecesE4anys;
	add.s32 	%r24, %r33, %r18;
	st.shared.u64 	[%r24], %rd425;
	bar.sync 	0;
	setp.ne.s32 	%p13, %r30, 0;
	@%p13 bra 	$L__BB0_17;
	not.b64 	%rd429, %rd430;
	mov.u64 	%rd428, 0;
	mov.u32 	%r36, 0;
$L__BB0_15:
	.pragma "nounroll";
	ld.shared.u64 	%rd372, [%r35];
	xor.b64  	%rd373, %rd372, %rd430;
	mul.lo.s64 	%rd374, %rd373, -3335678366873096957;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd374, 29;
	shr.b64 	%rhs, %rd374, 35;
	add.u64 	%rd375, %lhs, %rhs;
	}
	add.s64 	%rd430, %rd375, %rd372;
	ld.shared.u64 	%rd376, [%r34];
	xor.b64  	%rd377, %rd430, %rd376;
	xor.b64  	%rd378, %rd377, %rd429;
	mul.lo.s64 	%rd379, %rd378, -7046029254386353131;
	{
	.reg .b64 %lhs;
	.reg .b64 %rhs;
	shl.b64 	%lhs, %rd379, 29;
	shr.b64 	%rhs, %rd379, 35;
	add.u64 	%rd380, %lhs, %rhs;
	}
	add.s64 	%rd429, %rd380, %rd377;
	ld.shared.u64 	%rd381, [%r33];
	or.b64  	%rd428, %rd381, %rd428;
	add.s32 	%r35, %r35, 8;
	add.s32 	%r34, %r34, 8;
	add.s32 	%r33, %r33, 8;
	add.s32 	%r36, %r36, 1;
	setp.ne.s32 	%p14, %r36, 256;
	@%p14 bra 	$L__BB0_15;
	mov.u32 	%r31, %ctaid.x;
	ld.param.u64 	%rd385, [billow_hash_pieces_param_1];
	cvta.to.global.u64 	%rd382, %rd385;
	mul.wide.u32 	%rd383, %r31, 24;
	add.s64 	%rd384, %rd382, %rd383;
	st.global.u64 	[%rd384], %rd430;
	st.global.u64 	[%rd384+8], %rd429;
	st.global.u64 	[%rd384+16], %rd428;
$L__BB0_17:
	ret;
}
)PTX";
}  // namespace billow::gpumem
